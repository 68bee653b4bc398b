# Sets GRADWIRE_PYTHON: the Python that has PyTorch and, for the tests, numpy and safetensors.
# Unless -DGRADWIRE_PYTHON= says so, that is the one of .venv, which scripts/setup.sh makes and to
# which it lends the PyTorch of the Python that $GRADWIRE_PYTHON names; without .venv, that itself.
# Under pip, that is the Python which installs.
if(SKBUILD AND Python_EXECUTABLE AND NOT GRADWIRE_PYTHON)
  set(GRADWIRE_PYTHON "${Python_EXECUTABLE}" CACHE STRING "Python that has PyTorch")
endif()
if(NOT GRADWIRE_PYTHON)
  cmake_path(SET found NORMALIZE ${CMAKE_CURRENT_LIST_DIR}/../.venv/bin/python)
  if(NOT EXISTS ${found})
    if(DEFINED ENV{GRADWIRE_PYTHON})
      set(found $ENV{GRADWIRE_PYTHON})
    else()
      unset(found)
      find_program(found NAMES python3 NO_CACHE)
    endif()
  endif()
  set(GRADWIRE_PYTHON "${found}" CACHE STRING "Python that has PyTorch, numpy and safetensors")
  unset(found)
endif()
