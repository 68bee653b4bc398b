# gradwire_vendor(FILE...): installs those shared libraries of the distribution that the files need
# and that a machine without development packages lacks into the Python package (gradwire/lib).
# libtorch comes with PyTorch; libc, libstdc++, OpenSSL and zlib are where Python is.
function(gradwire_vendor)
  set(files ${ARGN})
  list(JOIN files "\" \"" files)
  install(CODE "
    file(GET_RUNTIME_DEPENDENCIES EXECUTABLES \"${files}\"
      RESOLVED_DEPENDENCIES_VAR found UNRESOLVED_DEPENDENCIES_VAR not_wanted
      PRE_INCLUDE_REGEXES \"^lib(fmt|spdlog|isal|xxhash)[.]so\" PRE_EXCLUDE_REGEXES \".*\")
    foreach(library IN LISTS found)
      file(INSTALL \${library} FOLLOW_SYMLINK_CHAIN
        DESTINATION \${CMAKE_INSTALL_PREFIX}/gradwire/lib)
    endforeach()" COMPONENT python EXCLUDE_FROM_ALL)
endfunction()
