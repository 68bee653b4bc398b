# Packages the Python package from the build folder GRADWIRE_PREBUILT, in which the target
# gradwire_package is built: nothing is compiled.
set(GRADWIRE_PACKAGE ${GRADWIRE_PREBUILT}/python/gradwire)
file(GLOB module ${GRADWIRE_PACKAGE}/_torch_*/_core*.so)
if(NOT module)
  message(FATAL_ERROR "GRADWIRE_PREBUILT: ${GRADWIRE_PACKAGE} has no _torch_*/_core*.so; build the "
    "target gradwire_package there first")
endif()
add_custom_target(gradwire_package)  # pyproject.toml builds it.
include(cmake/GradwirePackage.cmake)
