# gradwire_shared: libgradwire.so, all layers that need no libtorch. The programs and the modules of
# the Python package share it; tests, examples and users of the C++ library link the layers.
get_property(layers GLOBAL PROPERTY GRADWIRE_LAYERS)
set(objects "")
foreach(layer ${layers})
  list(APPEND objects $<TARGET_OBJECTS:${layer}>)
endforeach()
add_library(gradwire_shared SHARED ${objects})
set_target_properties(gradwire_shared PROPERTIES OUTPUT_NAME gradwire LINKER_LANGUAGE CXX
  LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib
  LINK_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/exports.map)
target_link_libraries(gradwire_shared PRIVATE ${GRADWIRE_FMT} OpenSSL::SSL OpenSSL::Crypto
  ZLIB::ZLIB ${GRADWIRE_ISAL} ${GRADWIRE_XXHASH} Threads::Threads)
# Exports our names only, so that they do not clash with another library's fmt or OpenSSL. Calls
# inside the library are direct.
target_link_options(gradwire_shared PRIVATE -Wl,-Bsymbolic -Wl,-z,defs
  -Wl,--version-script=${CMAKE_CURRENT_LIST_DIR}/exports.map)

# gradwire_link_shared(TARGET LIBRARY...): links static libraries above libtorch, and the layers
# below from libgradwire.so. It comes first: for symbols that it defines, the linker takes no object
# from the layers' archives, on which LIBRARY depends.
function(gradwire_link_shared target)
  target_link_libraries(${target} PRIVATE gradwire_shared ${ARGN})
  gradwire_search_path(${target} "$ORIGIN/../lib")
endfunction()
