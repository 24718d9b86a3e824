# Finds the libraries that Opwire is built with, under the names that the targets use.
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(absl REQUIRED)
# Debian and upstream spell the package differently.
find_package(FlatBuffers NAMES FlatBuffers flatbuffers Flatbuffers REQUIRED)
find_program(OPWIRE_FLATC flatc REQUIRED)
pkg_check_modules(ZMQ REQUIRED IMPORTED_TARGET libzmq)
pkg_check_modules(SODIUM REQUIRED IMPORTED_TARGET libsodium)
pkg_check_modules(RE2 REQUIRED IMPORTED_TARGET re2)
set_property(TARGET PkgConfig::RE2 PROPERTY INTERFACE_COMPILE_OPTIONS)  # no -pthread: precompiled headers are made without it
find_package(spdlog REQUIRED)
find_package(CLI11 REQUIRED)
find_package(nlohmann_json REQUIRED)
# oneDNN's own package file asks for OpenCL even where the library was built without need of it.
find_path(DNNL_INCLUDE_DIR dnnl.hpp REQUIRED PATH_SUFFIXES dnnl)
find_library(DNNL_LIBRARY dnnl REQUIRED)
add_library(DNNL::dnnl UNKNOWN IMPORTED)
set_target_properties(DNNL::dnnl PROPERTIES IMPORTED_LOCATION ${DNNL_LIBRARY} INTERFACE_INCLUDE_DIRECTORIES ${DNNL_INCLUDE_DIR})
if(NOT OPWIRE_FUZZ)  # a fuzzer has one thread, and clang's runtime is another package
  find_package(OpenMP REQUIRED)
endif()
set(Boost_USE_STATIC_LIBS ON)  # of some kilobytes: the programs need no package for it
find_package(Boost 1.74 REQUIRED COMPONENTS context)
find_path(XXHASH_INCLUDE_DIR xxhash.h REQUIRED)
# cuDNN's graphs are built with its headers and with those of its frontend, which is a package of PyPI (nvidia-cudnn-frontend); the library is opened at run time.
# A build without them has no variants of cuDNN's, and says so.
find_path(CUDNN_FRONTEND_INCLUDE_DIR cudnn_frontend.h PATHS ENV CPLUS_INCLUDE_PATH)
find_path(CUDNN_INCLUDE_DIR cudnn.h PATHS ENV CPLUS_INCLUDE_PATH HINTS $ENV{CUDNN_HOME}/include $ENV{CUDA_HOME}/include /usr/local/cuda/include)
find_path(CUDART_INCLUDE_DIR cuda_runtime_api.h PATHS ENV CPLUS_INCLUDE_PATH HINTS $ENV{CUDA_HOME}/include /usr/local/cuda/include)
set(cudnn_found OFF)
if(CUDNN_FRONTEND_INCLUDE_DIR AND CUDNN_INCLUDE_DIR AND CUDART_INCLUDE_DIR AND NOT OPWIRE_FUZZ)
  set(cudnn_found ON)
endif()
option(OPWIRE_CUDNN "Build the variants of cuDNN's" ${cudnn_found})
