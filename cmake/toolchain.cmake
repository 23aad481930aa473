# Compiler, linker and cache: used where present, never required beyond the compiler itself.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
# -O2 as torch itself: the hot loops are written by hand for each instruction set and chosen at run
# time, so that one binary runs on every CPU of its architecture.
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")

if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 12)
  message(FATAL_ERROR "trainyard needs g++ 12 or newer, found ${CMAKE_CXX_COMPILER_VERSION}: apt-get install g++-12 and set CXX=g++-12")
elseif(CMAKE_CXX_COMPILER_ID STREQUAL "Clang" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 16)
  message(FATAL_ERROR "trainyard needs clang 16 or newer, found ${CMAKE_CXX_COMPILER_VERSION}: apt-get install clang-16 and set CXX=clang++-16")
endif()

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
endif()

include(CheckLinkerFlag)
foreach(linker mold lld)
  check_linker_flag(CXX "-fuse-ld=${linker}" YARD_HAS_${linker})
  if(YARD_HAS_${linker})
    add_link_options("-fuse-ld=${linker}")
    break()
  endif()
endforeach()

set(YARD_SANITIZE "" CACHE STRING "sanitizers for -fsanitize=, as 'address,undefined' or 'thread'")
if(YARD_SANITIZE)
  add_compile_options(-fsanitize=${YARD_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  # Sanitizers hide from g++ that a variable was set; its warning then fires inside <regex>.
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    add_compile_options(-Wno-maybe-uninitialized)
  endif()
  # Line numbers are all that a report needs, and -O1 halves the build; assertions stay on.
  set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O1 -g1")
  add_link_options(-fsanitize=${YARD_SANITIZE})
endif()
set(YARD_TORCH ON CACHE STRING "build the modules that need libtorch: ON, OFF; AUTO, of a wheel: where its Python has torch")
set(YARD_TORCH_PYTHON_FLAGS "")
if(SKBUILD)
  # While pip builds a wheel it hides the packages of the environment behind PYTHONPATH.
  set(YARD_TORCH_PYTHON_FLAGS -E)
endif()
if(YARD_TORCH STREQUAL "AUTO")
  execute_process(
    COMMAND ${Python_EXECUTABLE} ${YARD_TORCH_PYTHON_FLAGS} -c "import importlib.util as u, sys; sys.exit(u.find_spec('torch') is None)"
    RESULT_VARIABLE yard_torch_missing OUTPUT_QUIET ERROR_QUIET)
  if(yard_torch_missing EQUAL 0)
    set(YARD_TORCH ON)
    set(TORCH_PYTHON ${Python_EXECUTABLE})
  else()
    set(YARD_TORCH OFF)
    message(STATUS "Python package: without trainyard.distributed, ${Python_EXECUTABLE} has no torch")
  endif()
endif()
