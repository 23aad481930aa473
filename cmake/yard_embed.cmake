# yard_embed(<module> <function> FILES...): the files become part of the module, as
#   std::string_view <function>(std::string_view name);   // in namespace yard::<module>
# name: the file's, without folder. Empty for a name that is not there. The declaration is the module's own.
#
# Run as a script (-P), this same file writes the source.
if(CMAKE_SCRIPT_MODE_FILE)
  set(cases "")
  foreach(path IN LISTS FILES)
    get_filename_component(name ${path} NAME)
    file(READ ${path} hex HEX)
    string(REGEX REPLACE "(..)" "\\\\x\\1" text "${hex}")
    # Lines of 40 bytes, for who has to look at it.
    string(REGEX REPLACE "(................................................................................................................................................................)" "\\1\"\n    \"" text "${text}")
    string(APPEND cases "  static constexpr char k_${MODULE}_${index}[] =\n    \"${text}\";\n  if (name == \"${name}\") return {k_${MODULE}_${index}, sizeof k_${MODULE}_${index} - 1};\n")
    math(EXPR index "${index}+1")
  endforeach()
  file(WRITE ${OUTPUT} "#include <string_view>\nnamespace yard::${MODULE} {\nstd::string_view ${FUNCTION}(std::string_view name);\nstd::string_view ${FUNCTION}(std::string_view name) {\n${cases}  return {};\n}\n}  // namespace yard::${MODULE}\n")
  return()
endif()

set(yard_embed_script ${CMAKE_CURRENT_LIST_FILE})
function(yard_embed module function)
  set(output ${CMAKE_BINARY_DIR}/embedded/${module}_${function}.cc)
  add_custom_command(OUTPUT ${output}
    COMMAND ${CMAKE_COMMAND} "-DFILES=${ARGN}" -DMODULE=${module} -DFUNCTION=${function} -DOUTPUT=${output} -Dindex=0
            -P ${yard_embed_script}
    DEPENDS ${ARGN} ${yard_embed_script} VERBATIM)
  target_sources(yard_${module} PRIVATE ${output})
endfunction()
