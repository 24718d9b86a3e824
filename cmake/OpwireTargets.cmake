# opwire_library(NAME SOURCES globs... PUBLIC targets... PRIVATE targets...): a static library of one folder.
# opwire_program(NAME SOURCES globs... LIBS targets...): a program; all lie in the build's bin/, and beside one another where installed.
# opwire_flatbuffers(TARGET schema...): C++ headers generated from schemas, beside the target's own includes.
# opwire_precompile(TARGET [HEADERS files...]): the headers that nearly every file takes, and these of the tree, parsed once for this
# target. Files name all that they use: only builds that take them together do this.
# opwire_precompiled(NAME headers... OPTIONS options...): those of the protocol, which cost seconds, parsed once for all targets that ask
# for them by opwire_precompile(TARGET NAME).
set(opwire_common_headers <algorithm> <functional> <memory> <string> <string_view> <utility> <vector> ${CMAKE_SOURCE_DIR}/ir/base/status.h)

function(opwire_precompiled name)
  cmake_parse_arguments(arg "" "" "OPTIONS" ${ARGN})
  if(NOT OPWIRE_TOGETHER)
    return()
  endif()
  file(WRITE ${CMAKE_BINARY_DIR}/${name}.cc "")
  add_library(${name} OBJECT ${CMAKE_BINARY_DIR}/${name}.cc)
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR} ${CMAKE_BINARY_DIR}/generated)
  target_link_libraries(${name} PRIVATE absl::flat_hash_map absl::status absl::statusor fmt::fmt)
  target_compile_options(${name} PRIVATE ${arg_OPTIONS})
  target_precompile_headers(${name} PRIVATE ${opwire_common_headers} <absl/container/flat_hash_map.h> ${CMAKE_SOURCE_DIR}/ir/wire/message.h
    ${arg_UNPARSED_ARGUMENTS})
  add_dependencies(${name} opwire_schema)
endfunction()

function(opwire_precompile target)
  if(NOT OPWIRE_TOGETHER)
    return()
  endif()
  cmake_parse_arguments(arg "" "" "HEADERS" ${ARGN})
  if(arg_UNPARSED_ARGUMENTS)
    target_precompile_headers(${target} REUSE_FROM ${arg_UNPARSED_ARGUMENTS})
  else()
    list(TRANSFORM arg_HEADERS PREPEND ${CMAKE_SOURCE_DIR}/)
    target_precompile_headers(${target} PRIVATE ${opwire_common_headers} ${arg_HEADERS})
  endif()
endfunction()

function(opwire_library name)
  cmake_parse_arguments(arg "" "" "SOURCES;PUBLIC;PRIVATE" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${arg_SOURCES})
  add_library(${name} STATIC ${sources})
  target_include_directories(${name} PUBLIC ${CMAKE_SOURCE_DIR} ${CMAKE_BINARY_DIR}/generated)
  target_link_libraries(${name} PUBLIC ${arg_PUBLIC} PRIVATE ${arg_PRIVATE})
endfunction()

function(opwire_program name)
  cmake_parse_arguments(arg "" "" "SOURCES;LIBS" ${ARGN})
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE ${arg_LIBS})
  target_compile_definitions(${name} PRIVATE OPWIRE_VERSION="${PROJECT_VERSION}")
  target_compile_options(${name} PRIVATE $<$<CONFIG:Release>:-O1>)  # flags and text: a third less time to compile
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
endfunction()

function(opwire_flatbuffers target)
  foreach(schema ${ARGN})
    cmake_path(GET schema STEM stem)
    file(RELATIVE_PATH folder ${CMAKE_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR})
    set(out ${CMAKE_BINARY_DIR}/generated/${folder}/schema)
    add_custom_command(
      OUTPUT ${out}/${stem}_generated.h
      COMMAND ${OPWIRE_FLATC} --cpp --scoped-enums --gen-object-api --cpp-include ${folder}/schema/alignment.h -o ${out} ${CMAKE_CURRENT_SOURCE_DIR}/${schema}
      DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${schema}
      VERBATIM)
    list(APPEND headers ${out}/${stem}_generated.h)
  endforeach()
  add_custom_target(${target} DEPENDS ${headers})
endfunction()
