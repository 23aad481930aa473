# libtorch out of the installed torch wheel, as the target yard_torch.
#
# torch's own TorchConfig.cmake runs CUDA's CMake checks when the wheel is a CUDA one, and those
# need the CUDA toolkit. We need only headers and shared objects, so we name them ourselves.
# TORCH_PYTHON (cache or environment) chooses the Python whose torch is used; default: .venv.
if(NOT TORCH_PYTHON)
  if(DEFINED ENV{TORCH_PYTHON} AND NOT "$ENV{TORCH_PYTHON}" STREQUAL "")
    set(TORCH_PYTHON $ENV{TORCH_PYTHON})
  else()
    set(TORCH_PYTHON ${CMAKE_SOURCE_DIR}/.venv/bin/python)
  endif()
endif()
set(TORCH_PYTHON ${TORCH_PYTHON} CACHE FILEPATH "the Python whose installed torch is used")

# find_spec, not import: importing torch costs seconds and may fail for want of a driver.
execute_process(
  COMMAND ${TORCH_PYTHON} ${YARD_TORCH_PYTHON_FLAGS} -c "import importlib.util as u, os; print(os.path.dirname(u.find_spec('torch').origin))"
  OUTPUT_VARIABLE TORCH_DIR OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_VARIABLE torch_error RESULT_VARIABLE torch_rc)
if(NOT torch_rc EQUAL 0)
  message(FATAL_ERROR "no torch in ${TORCH_PYTHON}: run 'make setup', or set TORCH_PYTHON=/path/to/python of an environment with torch")
endif()
# NO_CACHE: another TORCH_PYTHON in the same build folder must find its own.
find_library(TORCH_CPU_LIBRARY torch_cpu PATHS ${TORCH_DIR}/lib NO_DEFAULT_PATH NO_CACHE REQUIRED)
find_library(TORCH_C10_LIBRARY c10 PATHS ${TORCH_DIR}/lib NO_DEFAULT_PATH NO_CACHE REQUIRED)
find_library(TORCH_CUDA_LIBRARY torch_cuda PATHS ${TORCH_DIR}/lib NO_DEFAULT_PATH NO_CACHE)
find_library(TORCH_C10_CUDA_LIBRARY c10_cuda PATHS ${TORCH_DIR}/lib NO_DEFAULT_PATH NO_CACHE)

add_library(yard_torch INTERFACE)
# After the system's folders, not before: the wheel brings its own copy of fmt's headers, whose
# functions no library defines for us.
target_compile_options(yard_torch INTERFACE
  "SHELL:-idirafter ${TORCH_DIR}/include" "SHELL:-idirafter ${TORCH_DIR}/include/torch/csrc/api/include")
target_link_libraries(yard_torch INTERFACE ${TORCH_CPU_LIBRARY} ${TORCH_C10_LIBRARY})
if(TORCH_CUDA_LIBRARY)
  # Kernels register themselves when the library is loaded, so it must stay although no symbol is
  # used; its own dependencies are resolved by its RPATH at run time, not by our link.
  target_link_libraries(yard_torch INTERFACE
    "-Wl,--push-state,--no-as-needed" ${TORCH_CUDA_LIBRARY} ${TORCH_C10_CUDA_LIBRARY} "-Wl,--pop-state"
    "-Wl,--allow-shlib-undefined")
endif()
message(STATUS "libtorch: ${TORCH_DIR}")
