# Sets GRADWIRE_PYTHON: the Python with PyTorch and, for the tests, numpy and safetensors. The
# default is that of .venv, which scripts/setup.sh makes with the PyTorch of the Python named by
# $GRADWIRE_PYTHON; without .venv, that Python itself. Under pip, it is the Python that installs.
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
