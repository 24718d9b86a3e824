# opwire_embed(TARGET VARIABLE files...): the files' text in the target, as `std::span<const EmbeddedFile> opwire::VARIABLE()`
# (kernels/embedded.h) in the order given, named by their paths from the top. Run as a script it writes that source.
if(CMAKE_SCRIPT_MODE_FILE STREQUAL CMAKE_CURRENT_LIST_FILE)
  set(text "// Generated: files as strings.\n#include \"kernels/embedded.h\"\n\nnamespace opwire {\n\n")
  string(APPEND text "std::span<const EmbeddedFile> ${VARIABLE}() {\n  static constexpr EmbeddedFile kFiles[] = {\n")
  string(REPLACE "|" ";" FILES "${FILES}")
  foreach(name IN LISTS FILES)
    file(READ "${ROOT}/${name}" content)
    string(APPEND text "      {\"${name}\", R\"opwire_embed(${content})opwire_embed\"},\n")
  endforeach()
  string(APPEND text "  };\n  return kFiles;\n}\n\n}  // namespace opwire\n")
  file(WRITE "${OUTPUT}" "${text}")
  return()
endif()

set(opwire_embed_script ${CMAKE_CURRENT_LIST_FILE})
function(opwire_embed target variable)
  set(output ${CMAKE_CURRENT_BINARY_DIR}/${variable}.cc)
  list(JOIN ARGN "|" files)
  list(TRANSFORM ARGN PREPEND ${CMAKE_SOURCE_DIR}/ OUTPUT_VARIABLE paths)
  add_custom_command(
    OUTPUT ${output}
    COMMAND ${CMAKE_COMMAND} -DOUTPUT=${output} -DVARIABLE=${variable} -DROOT=${CMAKE_SOURCE_DIR} "-DFILES=${files}" -P ${opwire_embed_script}
    DEPENDS ${paths} ${opwire_embed_script}
    VERBATIM)
  target_sources(${target} PRIVATE ${output})
endfunction()
