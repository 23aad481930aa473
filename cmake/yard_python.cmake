# yard_python(DEPS <modules>): the Python package trainyard, whose C++ is python/bindings.
#
# In an ordinary build it comes to <build>/python, to be used with PYTHONPATH, for the Python of
# YARD_PYTHON; left out where that has no headers or no nanobind. `pip install .` (pyproject.toml)
# builds nothing but it, and there it is required.
function(yard_python)
  cmake_parse_arguments(arg "" "" "DEPS" ${ARGN})
  if(YARD_SANITIZE)
    return()  # a Python without sanitizers cannot load it
  endif()
  if(NOT SKBUILD)
    set(YARD_PYTHON ${CMAKE_SOURCE_DIR}/.venv/bin/python CACHE FILEPATH "the Python that the package is built for")
    set(Python_EXECUTABLE ${YARD_PYTHON})
  endif()
  if(SKBUILD OR EXISTS ${YARD_PYTHON})
    find_package(Python 3.10 QUIET COMPONENTS Interpreter Development.Module)
  endif()
  if(Python_FOUND)
    execute_process(COMMAND ${Python_EXECUTABLE} -m nanobind --cmake_dir
      OUTPUT_VARIABLE nanobind_ROOT OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    find_package(nanobind CONFIG QUIET)
  endif()
  if(NOT nanobind_FOUND)
    if(SKBUILD)
      message(FATAL_ERROR "the Python package needs Python's headers (python3-dev) and nanobind")
    endif()
    message(STATUS "Python package: left out, ${YARD_PYTHON} has no headers or no nanobind")
    return()
  endif()

  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/python/bindings/*.cc)
  nanobind_add_module(yard_python NB_STATIC NB_SUPPRESS_WARNINGS ${sources})
  list(TRANSFORM arg_DEPS PREPEND yard_)
  target_link_libraries(yard_python PRIVATE yard_warnings ${arg_DEPS})
  # Other modules in the process bring the same libraries in other versions.
  target_link_options(yard_python PRIVATE -Wl,--exclude-libs,ALL)
  set_target_properties(yard_python PROPERTIES OUTPUT_NAME _native
    LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/python/trainyard)
  if(SKBUILD)
    install(TARGETS yard_python LIBRARY DESTINATION trainyard COMPONENT python)
    add_custom_target(yard_python_wheel DEPENDS yard_python)
    return()
  endif()
  add_custom_target(yard_python_files ALL
    COMMAND ${CMAKE_COMMAND} -E copy_directory ${CMAKE_SOURCE_DIR}/python/trainyard
            ${CMAKE_BINARY_DIR}/python/trainyard)
  add_dependencies(yard_python_files yard_python)
endfunction()
