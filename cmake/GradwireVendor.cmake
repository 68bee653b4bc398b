# gradwire_vendor(FILE...): installs into the Python package (gradwire/lib) the distribution's
# shared libraries that the files need and that a machine without development packages lacks.
# libtorch comes with PyTorch; libc, libstdc++, OpenSSL and zlib exist wherever Python does.
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
