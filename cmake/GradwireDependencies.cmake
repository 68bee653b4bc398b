# Third-party libraries. Debian package in brackets.
find_package(Threads REQUIRED)
find_package(fmt REQUIRED)            # [libfmt-dev]
set(GRADWIRE_FMT fmt::fmt)
if(GRADWIRE_STATIC)
  set(GRADWIRE_FMT fmt::fmt-header-only)
  set(OPENSSL_USE_STATIC_LIBS ON)
  set(static_library lib)
  set(static_suffix .a)
endif()
find_package(nlohmann_json REQUIRED)  # [nlohmann-json3-dev]
find_package(CLI11 REQUIRED)          # [libcli11-dev]
find_package(tl-expected REQUIRED)    # [libexpected-dev]
find_package(OpenSSL REQUIRED)        # [libssl-dev]
find_package(ZLIB REQUIRED)           # [zlib1g-dev]
find_library(GRADWIRE_ISAL ${static_library}isal${static_suffix} REQUIRED)  # [libisal-dev]
find_library(GRADWIRE_XXHASH ${static_library}xxhash${static_suffix} REQUIRED)  # [libxxhash-dev]
include(GradwirePython)
if(GRADWIRE_TORCH)
  include(GradwireTorch)              # the PyTorch wheel
endif()

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
endif()
