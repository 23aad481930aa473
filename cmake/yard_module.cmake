# yard_module(<name> [TORCH] DEPS <modules> [SYSTEM <external targets>])
#
# One static library per folder of the current floor. DEPS are the only modules whose headers it
# may include; tools/check_layers.py reads the same lines and fails on any other.
# Every *_test.cc beside the sources becomes part of one test binary, registered with ctest under
# the module's name and label: `ctest -L shards` runs that module alone. *_bench.cc are left to
# bench/. Files in a module's testing/ folder are fakes: linked into tests only.
# TORCH: the module may include libtorch's narrow headers; skipped where YARD_TORCH is OFF.
macro(add_subdirectory_floor floor)
  set(yard_floor_dir ${CMAKE_SOURCE_DIR}/src/${floor})
endmacro()

function(yard_module name)
  cmake_parse_arguments(arg "TORCH" "" "DEPS;SYSTEM" ${ARGN})
  if(arg_TORCH AND NOT YARD_TORCH)
    return()
  endif()
  set(dir ${yard_floor_dir}/${name})
  file(GLOB sources CONFIGURE_DEPENDS ${dir}/*.cc)
  file(GLOB fakes CONFIGURE_DEPENDS ${dir}/testing/*.cc)
  set(tests ${sources})
  list(FILTER tests INCLUDE REGEX "_test\\.cc$")
  list(FILTER sources EXCLUDE REGEX "_(test|bench)\\.cc$")
  list(TRANSFORM arg_DEPS PREPEND yard_)
  if(sources)
    add_library(yard_${name} STATIC ${sources})
    target_include_directories(yard_${name} PUBLIC ${yard_floor_dir})
    target_link_libraries(yard_${name} PUBLIC yard_warnings ${arg_DEPS} ${arg_SYSTEM})
    if(arg_TORCH)
      target_link_libraries(yard_${name} PUBLIC yard_torch)
    endif()
  else()
    add_library(yard_${name} INTERFACE)
    target_include_directories(yard_${name} INTERFACE ${yard_floor_dir})
    target_link_libraries(yard_${name} INTERFACE ${arg_DEPS} ${arg_SYSTEM})
    if(arg_TORCH)
      target_link_libraries(yard_${name} INTERFACE yard_torch)
    endif()
  endif()
  if(tests)
    add_executable(yard_${name}_test ${tests} ${fakes})
    target_link_libraries(yard_${name}_test PRIVATE yard_${name} yard_warnings GTest::gtest_main)
    target_compile_definitions(yard_${name}_test PRIVATE YARD_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
    if(YARD_SANITIZE MATCHES "address")
      target_compile_options(yard_${name}_test PRIVATE -O0)  # compiles in half the time
    endif()
    add_test(NAME ${name} COMMAND yard_${name}_test)
    # The timeout ends a hang; no test comes near it, under a sanitizer on a busy machine either.
    set_tests_properties(${name} PROPERTIES LABELS ${name} TIMEOUT 900
      ENVIRONMENT "OMP_NUM_THREADS=1;TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1")
  endif()
endfunction()

# yard_program(<name> [TORCH] DEPS ... [SYSTEM ...]): the executable of apps/<name>.
function(yard_program name)
  cmake_parse_arguments(arg "TORCH" "" "DEPS;SYSTEM" ${ARGN})
  if(arg_TORCH AND NOT YARD_TORCH)
    return()
  endif()
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/apps/${name}/*.cc)
  if(NOT sources)
    return()
  endif()
  list(TRANSFORM arg_DEPS PREPEND yard_)
  add_executable(${name} ${sources})
  target_link_libraries(${name} PRIVATE yard_warnings ${arg_DEPS} ${arg_SYSTEM})
endfunction()
