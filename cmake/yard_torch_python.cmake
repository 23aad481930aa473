# yard_torch_python(DEPS <modules>): what of the Python package needs torch: python/torch_bindings,
# as trainyard/_torch. Left out where the package itself is, or where the Python that it is built
# for is not the one whose torch is used: an extension and its torch have to be of one build.
function(yard_torch_python)
  cmake_parse_arguments(arg "" "" "DEPS" ${ARGN})
  if(NOT YARD_TORCH OR NOT TARGET yard_python)
    return()
  endif()
  find_package(Python 3.10 QUIET COMPONENTS Interpreter Development.Module)
  execute_process(
    COMMAND ${Python_EXECUTABLE} ${YARD_TORCH_PYTHON_FLAGS} -c "import importlib.util as u, os; print(os.path.dirname(u.find_spec('torch').origin))"
    OUTPUT_VARIABLE torch_dir OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(NOT torch_dir STREQUAL TORCH_DIR)
    message(STATUS "Python package: without trainyard.distributed, ${Python_EXECUTABLE} does not use ${TORCH_DIR}")
    return()
  endif()
  find_library(TORCH_PYTHON_LIBRARY torch_python PATHS ${TORCH_DIR}/lib NO_DEFAULT_PATH NO_CACHE REQUIRED)

  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/python/torch_bindings/*.cc)
  Python_add_library(yard_torch_python MODULE WITH_SOABI ${sources})
  list(TRANSFORM arg_DEPS PREPEND yard_)
  target_link_libraries(yard_torch_python PRIVATE yard_warnings ${arg_DEPS} yard_torch ${TORCH_PYTHON_LIBRARY})
  # torch is imported first, so that its libraries are there, wherever it is installed.
  set_target_properties(yard_torch_python PROPERTIES OUTPUT_NAME _torch
    CXX_VISIBILITY_PRESET hidden BUILD_RPATH "" SKIP_BUILD_RPATH ON INSTALL_RPATH ""
    LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/python/trainyard)
  target_link_options(yard_torch_python PRIVATE -Wl,--exclude-libs,ALL)
  if(SKBUILD)
    install(TARGETS yard_torch_python LIBRARY DESTINATION trainyard COMPONENT python)
    add_dependencies(yard_python_wheel yard_torch_python)
  else()
    add_dependencies(yard_python_files yard_torch_python)
  endif()
endfunction()
