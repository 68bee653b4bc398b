# Packages the Python package from the build folder GRADWIRE_PREBUILT, in which
# gradwire_core_module, gradwire and gradwire-torch are built: nothing is compiled.
set(prebuilt ${GRADWIRE_PREBUILT})
file(GLOB module ${prebuilt}/python/gradwire/_core*.so)
if(NOT module)
  message(FATAL_ERROR "GRADWIRE_PREBUILT: ${prebuilt}/python/gradwire has no _core*.so; build the "
    "targets gradwire_core_module, gradwire and gradwire-torch there first")
endif()
foreach(target gradwire_core_module gradwire gradwire-torch)
  add_custom_target(${target})  # pyproject.toml builds these targets.
endforeach()
file(GLOB sources python/gradwire/*.py python/gradwire/*.pyi python/gradwire/py.typed)
install(FILES ${sources} ${prebuilt}/python/gradwire/_build.py ${module}
  DESTINATION gradwire COMPONENT python)
install(PROGRAMS ${prebuilt}/bin/gradwire ${prebuilt}/bin/gradwire-torch
  DESTINATION gradwire/bin COMPONENT python)
install(PROGRAMS python/gradwire_command.py DESTINATION ${SKBUILD_SCRIPTS_DIR} RENAME gradwire
  COMPONENT python)
include(${CMAKE_CURRENT_LIST_DIR}/GradwireVendor.cmake)
gradwire_vendor(${module} ${prebuilt}/bin/gradwire)
install(DIRECTORY ${prebuilt}/share/gradwire/ DESTINATION gradwire/share/gradwire COMPONENT python)
