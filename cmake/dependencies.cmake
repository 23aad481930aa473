# Everything from outside, found once. Packages: packages.apt and requirements.txt.
find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
find_package(fmt REQUIRED)
find_package(spdlog REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)
find_package(yaml-cpp REQUIRED)
find_package(SQLite3 REQUIRED)
find_package(JPEG REQUIRED)
find_package(PNG REQUIRED)
find_package(pugixml REQUIRED)
find_package(Boost 1.74 REQUIRED)  # headers only: Asio, Beast
find_package(OpenSSL REQUIRED)
find_package(CURL 7.85 REQUIRED)
find_package(GTest REQUIRED)
find_package(ZLIB REQUIRED)
pkg_check_modules(freetype REQUIRED IMPORTED_TARGET freetype2)
pkg_check_modules(harfbuzz REQUIRED IMPORTED_TARGET harfbuzz)
pkg_check_modules(fuse3 REQUIRED IMPORTED_TARGET fuse3>=3.14)
pkg_check_modules(hwloc REQUIRED IMPORTED_TARGET hwloc>=2.4)
pkg_check_modules(hwy REQUIRED IMPORTED_TARGET libhwy)
pkg_check_modules(pcre2 REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(webp REQUIRED IMPORTED_TARGET libwebp libwebpdemux)
pkg_check_modules(zstd REQUIRED IMPORTED_TARGET libzstd>=1.4)

add_library(yard_warnings INTERFACE)
target_compile_options(yard_warnings INTERFACE -Wall -Wextra -Wpedantic -Werror
  -Wno-missing-field-initializers)  # options structs are meant to be given in part: {.port = 80}
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # g++ 12 sees an overlap in every "literal" + std::string (GCC bug 105329).
  target_compile_options(yard_warnings INTERFACE -Wno-restrict)
endif()
target_link_libraries(yard_warnings INTERFACE Threads::Threads)

# A step allocates and frees the same large tensors again and again; glibc gives their pages back to
# the kernel each time. Sanitizers bring their own malloc.
find_library(TCMALLOC_LIBRARY tcmalloc_minimal)
if(TCMALLOC_LIBRARY AND NOT YARD_SANITIZE)
  set(YARD_MALLOC "-Wl,--push-state,--no-as-needed" ${TCMALLOC_LIBRARY} "-Wl,--pop-state")
endif()

if(YARD_TORCH)
  include(cmake/libtorch.cmake)
endif()
