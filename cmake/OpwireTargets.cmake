# opwire_library(NAME SOURCES globs... PUBLIC targets... PRIVATE targets...): a static library of one folder.
# opwire_program(NAME SOURCES globs... LIBS targets...): a program; all lie in the build's bin/, and beside one another where installed.
# opwire_flatbuffers(TARGET schema...): C++ headers generated from schemas, beside the target's own includes.
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
