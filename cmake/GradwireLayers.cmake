add_library(gradwire_warnings INTERFACE)
target_compile_options(gradwire_warnings INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wnon-virtual-dtor -Woverloaded-virtual -Werror
  # gcc 12 reports designated initialisers that leave members to their defaults, and invents
  # overflows inside the standard library.
  -Wno-missing-field-initializers -Wno-stringop-overflow -Wno-array-bounds -Wno-restrict)

# gradwire_layer(NAME [TORCH] [USES layer...]): a static library gradwire_NAME of all of
# src/gradwire/NAME.
function(gradwire_layer name)
  cmake_parse_arguments(arg "TORCH" "" "USES" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/gradwire/${name}/*.cpp)
  if(NOT sources)
    return()
  endif()
  add_library(gradwire_${name} STATIC ${sources})
  set_target_properties(gradwire_${name} PROPERTIES LINKER_LANGUAGE CXX)
  target_include_directories(gradwire_${name} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/src> $<INSTALL_INTERFACE:include>)
  target_compile_features(gradwire_${name} PUBLIC cxx_std_20)
  target_link_libraries(gradwire_${name} PUBLIC tl::expected
    PRIVATE $<BUILD_INTERFACE:gradwire_warnings> fmt::fmt spdlog::spdlog nlohmann_json::nlohmann_json
    OpenSSL::Crypto Threads::Threads)
  foreach(used ${arg_USES})
    if(TARGET gradwire_${used})
      target_link_libraries(gradwire_${name} PUBLIC gradwire_${used})
    endif()
  endforeach()
  if(arg_TORCH)
    # As system headers, so that our warnings stay about our code.
    target_include_directories(gradwire_${name} SYSTEM PUBLIC ${TORCH_INCLUDE_DIRS})
    target_link_libraries(gradwire_${name} PUBLIC torch)
    target_precompile_headers(gradwire_${name} PRIVATE <torch/torch.h>)
  endif()
endfunction()
