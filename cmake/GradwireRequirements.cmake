# Fails, before anything is compiled, with all packages of the system that are missing, in one
# message. Run before the compiler is chosen.
set(missing "")
find_program(GRADWIRE_COMPILER NAMES ${CMAKE_CXX_COMPILER} $ENV{CXX} c++ g++ clang++)
if(NOT GRADWIRE_COMPILER)
  list(APPEND missing g++)
endif()
foreach(requirement fmt/format.h=libfmt-dev nlohmann/json.hpp=nlohmann-json3-dev
    CLI/CLI.hpp=libcli11-dev tl/expected.hpp=libexpected-dev openssl/ssl.h=libssl-dev
    zlib.h=zlib1g-dev isa-l/crc.h=libisal-dev xxhash.h=libxxhash-dev)
  string(REPLACE = ";" requirement ${requirement})
  list(GET requirement 0 header)
  list(GET requirement 1 package)
  find_path(GRADWIRE_FOUND_${package} ${header})
  if(NOT GRADWIRE_FOUND_${package})
    list(APPEND missing ${package})
  endif()
endforeach()
# For the Python that installs; scripts/setup.sh looks after that of .venv.
if(SKBUILD AND Python_EXECUTABLE)
  execute_process(COMMAND ${Python_EXECUTABLE} -c
    "import sysconfig; print(sysconfig.get_path('include'))"
    OUTPUT_VARIABLE headers OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(NOT EXISTS ${headers}/Python.h)
    list(APPEND missing python3-dev)
  endif()
endif()
if(missing)
  list(JOIN missing " " missing)
  message(FATAL_ERROR "gradwire is compiled, and these packages of Debian or Ubuntu are missing "
    "(elsewhere: their equivalents):\n  sudo apt-get install ${missing}")
endif()
