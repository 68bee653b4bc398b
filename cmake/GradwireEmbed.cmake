# gradwire_embed(TARGET NAME FILE): compiles a text file into TARGET as a function
# `std::string_view gradwire::embedded::NAME()`. A missing FILE counts as empty.
# This file, run as a script, writes such a source: cmake -DNAME= -DIN= -DOUT= -P.
if(CMAKE_SCRIPT_MODE_FILE)
  set(text "")
  if(EXISTS "${IN}")
    file(READ ${IN} text)
  endif()
  string(FIND "${text}" ")gradwire_text\"" end)
  if(NOT end EQUAL -1)
    message(FATAL_ERROR "${IN} contains )gradwire_text\", which cannot be embedded")
  endif()
  file(WRITE ${OUT} "#include <string_view>\n
namespace gradwire::embedded {\nstd::string_view ${NAME}();\nstd::string_view ${NAME}() {
  static constexpr char kText[] = R\"gradwire_text(${text})gradwire_text\";
  return {kText, sizeof(kText) - 1};\n}\n}  // namespace gradwire::embedded\n")
  return()
endif()

set(GRADWIRE_EMBED_SCRIPT ${CMAKE_CURRENT_LIST_FILE})

function(gradwire_embed target name file)
  set(source ${CMAKE_BINARY_DIR}/embedded/${name}.cpp)
  set(input "")
  if(EXISTS ${file})
    set(input ${file})
  elseif(EXISTS ${source})
    file(REMOVE ${source})  # Generated when the file still existed.
  endif()
  add_custom_command(OUTPUT ${source} VERBATIM
    # A file that appears changes the command: its time alone may be older than the source's.
    COMMAND ${CMAKE_COMMAND} -DNAME=${name} -DIN=${input} -DOUT=${source}
      -P ${GRADWIRE_EMBED_SCRIPT}
    DEPENDS ${input} ${GRADWIRE_EMBED_SCRIPT} COMMENT "Embedding ${file}")
  target_sources(${target} PRIVATE ${source})
  set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS -Wno-overlength-strings)
endfunction()
