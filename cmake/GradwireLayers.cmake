add_library(gradwire_warnings INTERFACE)
target_compile_options(gradwire_warnings INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wnon-virtual-dtor -Woverloaded-virtual -Werror
  # gcc 12 reports designated initializers that omit members with defaults, and false overflows
  # inside the standard library.
  -Wno-missing-field-initializers -Wno-stringop-overflow -Wno-array-bounds -Wno-restrict)

# gradwire_search_path(TARGET FOLDER...): adds folders to the RUNPATH of the target, identical in
# the build tree and in the install tree. If the two differ, CMake pads the shorter one with an
# empty element. The loader takes that for the current folder, so that anyone with write access
# there could run code as the user.
function(gradwire_search_path target)
  set_target_properties(${target} PROPERTIES BUILD_WITH_INSTALL_RPATH ON)
  set_property(TARGET ${target} APPEND PROPERTY INSTALL_RPATH ${ARGN})
endfunction()

# gradwire_layer(NAME [TORCH [FROM TORCH_TARGET]] [FOLDER FOLDER] [QUICKLY] [USES layer...]
# [SEPARATE | ALONE file...]): a static library gradwire_NAME of all of src/gradwire/FOLDER
# (default: NAME).
# QUICKLY: by gradwire_compile_quickly, as all layers with TORCH are.
# SEPARATE: not by gradwire_compile_together. ALONE: without these files, which have names of
# another file or include headers that exclude another's.
function(gradwire_layer name)
  cmake_parse_arguments(arg "TORCH;QUICKLY;SEPARATE" "FROM;FOLDER" "USES;ALONE" ${ARGN})
  set(folder ${name})
  if(arg_FOLDER)
    set(folder ${arg_FOLDER})
  endif()
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/gradwire/${folder}/*.cpp)
  if(NOT sources)
    return()
  endif()
  add_library(gradwire_${name} STATIC ${sources})
  set_target_properties(gradwire_${name} PROPERTIES LINKER_LANGUAGE CXX)
  target_include_directories(gradwire_${name} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/src> $<INSTALL_INTERFACE:include>)
  target_compile_features(gradwire_${name} PUBLIC cxx_std_20)
  target_link_libraries(gradwire_${name} PUBLIC tl::expected
    PRIVATE $<BUILD_INTERFACE:gradwire_warnings> ${GRADWIRE_FMT}
    OpenSSL::SSL OpenSSL::Crypto nlohmann_json::nlohmann_json Threads::Threads)
  foreach(used ${arg_USES})
    if(TARGET gradwire_${used})
      target_link_libraries(gradwire_${name} PUBLIC gradwire_${used})
    endif()
  endforeach()
  if(arg_TORCH)
    gradwire_use_torch(gradwire_${name} ${arg_FROM})
  else()
    set_property(GLOBAL APPEND PROPERTY GRADWIRE_LAYERS gradwire_${name})
    gradwire_use_common_headers(gradwire_${name})
  endif()
  if(arg_QUICKLY OR arg_TORCH)  # There, libtorch does the computing.
    gradwire_compile_quickly(gradwire_${name})
  endif()
  if(NOT arg_SEPARATE)
    gradwire_compile_together(gradwire_${name})
  endif()
  list(TRANSFORM arg_ALONE PREPEND ${PROJECT_SOURCE_DIR}/src/gradwire/${folder}/)
  set_source_files_properties(${arg_ALONE} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()

# gradwire_precompile(TARGET HEADER...): an object library of precompiled headers; targets use them
# with gradwire_precompiled_from(TARGET FROM). Their flags must be identical.
function(gradwire_precompile target)
  file(CONFIGURE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/${target}.cpp CONTENT "")
  add_library(${target} OBJECT ${CMAKE_CURRENT_BINARY_DIR}/${target}.cpp)
  target_precompile_headers(${target} PRIVATE ${ARGN})
  _gradwire_let_ccache_see_headers(${target})
endfunction()

function(gradwire_precompiled_from target from)
  target_precompile_headers(${target} REUSE_FROM ${from})
  _gradwire_let_ccache_see_headers(${target})
endfunction()

# ccache supports a precompiled header only if the compiler marks it in its output and ccache may
# trust it.
function(_gradwire_let_ccache_see_headers target)
  target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>)
  if(CMAKE_CXX_COMPILER_LAUNCHER)
    set(sloppiness pch_defines,time_macros,include_file_ctime,include_file_mtime)
    set_target_properties(${target} PROPERTIES CXX_COMPILER_LAUNCHER
      "${CMAKE_COMMAND};-E;env;CCACHE_SLOPPINESS=${sloppiness};${CMAKE_CXX_COMPILER_LAUNCHER}")
  endif()
endfunction()

# gradwire_use_common_headers(TARGET): precompiles the headers of nearly every file once. Parsing
# them takes half of a file's three seconds.
function(gradwire_use_common_headers target)
  if(NOT TARGET gradwire_common_headers)
    gradwire_precompile(gradwire_common_headers <algorithm> <chrono> <filesystem> <functional> <map>
      <memory> <optional> <string> <thread> <vector> <fmt/format.h>)
    target_compile_features(gradwire_common_headers PRIVATE cxx_std_20)
    target_link_libraries(gradwire_common_headers PRIVATE gradwire_warnings ${GRADWIRE_FMT})
  endif()
  gradwire_precompiled_from(${target} gradwire_common_headers)
endfunction()

# gradwire_use_torch(TARGET [TORCH]): links libtorch, the imported target TORCH (default: torch),
# with its headers precompiled once for all targets, because parsing them takes 20 s per file. All
# flags that affect a precompiled header must be identical, hence -fPIC in programs too.
function(gradwire_use_torch target)
  set(torch torch)
  if(ARGC GREATER 1)
    set(torch ${ARGV1})
  endif()
  set(headers gradwire_${torch}_headers)
  if(NOT TARGET ${headers})
    gradwire_precompile(${headers}
      <torch/torch.h> <torch/csrc/distributed/c10d/ProcessGroup.hpp> <fmt/format.h>)
    _gradwire_torch_flags(${headers} ${torch})
  endif()
  _gradwire_torch_flags(${target} ${torch})
  gradwire_precompiled_from(${target} ${headers})
endfunction()

# gradwire_compile_together(TARGET): compiles several files as one, because headers of libtorch take
# seven seconds per file, those of CLI11 or GoogleTest two to four.
function(gradwire_compile_together target)
  set_target_properties(${target} PROPERTIES
    UNITY_BUILD ${GRADWIRE_UNITY} UNITY_BUILD_BATCH_SIZE 12)
endfunction()

# gradwire_compile_quickly(TARGET): less optimization for code that computes little, such as
# commands and most tests: optimization takes half of their compile time.
function(gradwire_compile_quickly target)
  if(CMAKE_BUILD_TYPE STREQUAL Release)
    target_compile_options(${target} PRIVATE -O1)
  endif()
endfunction()

# gradwire_without_torch(FILE...): sources of such targets that do not include libtorch: its headers
# cost four seconds each even when precompiled.
function(gradwire_without_torch)
  set_source_files_properties(${ARGN} PROPERTIES SKIP_PRECOMPILE_HEADERS ON
                              SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()

function(_gradwire_torch_flags target torch)
  target_compile_features(${target} PUBLIC cxx_std_20)
  get_target_property(includes ${torch} INTERFACE_INCLUDE_DIRECTORIES)
  target_include_directories(${target} SYSTEM PUBLIC "$<BUILD_INTERFACE:${includes}>")
  target_link_libraries(${target} PUBLIC ${torch} PRIVATE $<BUILD_INTERFACE:gradwire_warnings>
    ${GRADWIRE_FMT} Threads::Threads)
  # libtorch's include folder has a newer fmt than the system's library. Header-only fmt is in a
  # namespace of its version, so that the two never clash.
  target_compile_definitions(${target} PRIVATE FMT_HEADER_ONLY)
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
  target_compile_options(${target} PRIVATE -fPIC)
endfunction()
