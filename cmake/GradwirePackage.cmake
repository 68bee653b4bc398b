# Installs the Python package from GRADWIRE_PACKAGE, the folder python/gradwire of a build.
file(GLOB sources ${PROJECT_SOURCE_DIR}/python/gradwire/*.py
  ${PROJECT_SOURCE_DIR}/python/gradwire/*.pyi ${PROJECT_SOURCE_DIR}/python/gradwire/py.typed)
install(FILES ${sources} ${GRADWIRE_PACKAGE}/_build.py DESTINATION gradwire
  COMPONENT python EXCLUDE_FROM_ALL)
install(CODE "
  file(GLOB modules ${GRADWIRE_PACKAGE}/_torch_*)
  file(INSTALL \${modules} DESTINATION \${CMAKE_INSTALL_PREFIX}/gradwire USE_SOURCE_PERMISSIONS)
  file(INSTALL ${GRADWIRE_PACKAGE}/bin/gradwire ${GRADWIRE_PACKAGE}/bin/gradwire-torch
    DESTINATION \${CMAKE_INSTALL_PREFIX}/gradwire/bin USE_SOURCE_PERMISSIONS)
  file(GLOB libraries ${GRADWIRE_PACKAGE}/lib/libgradwire*.so)
  file(INSTALL \${libraries}
    DESTINATION \${CMAKE_INSTALL_PREFIX}/gradwire/lib USE_SOURCE_PERMISSIONS)
  file(INSTALL ${GRADWIRE_PACKAGE}/share/gradwire
    DESTINATION \${CMAKE_INSTALL_PREFIX}/gradwire/share)"
  COMPONENT python EXCLUDE_FROM_ALL)
if(SKBUILD)
  install(PROGRAMS ${PROJECT_SOURCE_DIR}/python/gradwire_command.py
    DESTINATION ${SKBUILD_SCRIPTS_DIR} RENAME gradwire COMPONENT python EXCLUDE_FROM_ALL)
endif()
