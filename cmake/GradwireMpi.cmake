# Libraries through which gradwire calls MPI: one for each MPI of Debian whose compiler is installed
# (libopenmpi-dev, libmpich-dev). They are loaded for `--engine mpi` only.
include(GNUInstallDirs)

# Packages for elsewhere have the source only, in share/gradwire/mpi, as others do.
set(plugin ${PROJECT_SOURCE_DIR}/src/gradwire/mpi/plugin)
foreach(suffix c h)
  configure_file(${plugin}.${suffix} ${PROJECT_BINARY_DIR}/share/gradwire/mpi/plugin.${suffix}
    COPYONLY)
  install(FILES ${plugin}.${suffix} DESTINATION ${CMAKE_INSTALL_DATADIR}/gradwire/mpi)
endforeach()
if(GRADWIRE_STATIC)
  return()
endif()
foreach(mpi openmpi mpich)
  find_program(GRADWIRE_MPICC_${mpi} mpicc.${mpi})
  mark_as_advanced(GRADWIRE_MPICC_${mpi})
  if(NOT GRADWIRE_MPICC_${mpi})
    message(STATUS "No mpicc.${mpi}: gradwire is built without a library for it")
    continue()
  endif()
  set(library ${PROJECT_BINARY_DIR}/lib/libgradwire-mpi-${mpi}.so)
  add_custom_command(OUTPUT ${library}
    COMMAND ${GRADWIRE_MPICC_${mpi}} -std=c11 -O2 -Wall -Wextra -shared -fPIC -o ${library}
      ${plugin}.c
    DEPENDS ${plugin}.c ${plugin}.h VERBATIM)
  list(APPEND libraries ${library})
endforeach()
add_custom_target(gradwire_mpi_plugins ALL DEPENDS ${libraries})
if(TARGET gradwire_package)
  add_dependencies(gradwire_package gradwire_mpi_plugins)
endif()
if(libraries)
  install(FILES ${libraries} DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()
