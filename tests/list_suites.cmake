# Writes OUTPUT, a file of ctest with one test for each suite of the GoogleTest program PROGRAM:
# cmake -DPROGRAM=... -DPREFIX=... -DPROPERTIES="NAME VALUE ..." -DOUTPUT=... -P list_suites.cmake
execute_process(COMMAND ${PROGRAM} --gtest_list_tests OUTPUT_VARIABLE listed
  COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL "(^|\n)[^ \n]+\\.( |\n)" suites "${listed}")
set(script "")
foreach(suite ${suites})
  string(REGEX REPLACE "\\.?[ \n]" "" suite "${suite}")
  string(APPEND script
    "add_test([=[${PREFIX}${suite}]=] [=[${PROGRAM}]=] [=[--gtest_filter=${suite}.*]=])\n"
    "set_tests_properties([=[${PREFIX}${suite}]=] PROPERTIES ${PROPERTIES})\n")
endforeach()
file(WRITE ${OUTPUT} "${script}")
