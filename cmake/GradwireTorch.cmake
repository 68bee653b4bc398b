# Finds libtorch in a PyTorch wheel: defines the target `torch`, TORCH_INCLUDE_DIRS and
# TORCH_CXX_FLAGS as find_package(Torch) does, which it calls if that can work. Included by
# gradwire's own build and by its package configuration. A project that has found Torch keeps its
# own.
if(TARGET torch)
  return()
endif()

# Unless the user names one (Torch_DIR, CMAKE_PREFIX_PATH), asks Python where its PyTorch is.
if(NOT Torch_DIR AND NOT GRADWIRE_TORCH_CMAKE)
  find_file(GRADWIRE_TORCH_GIVEN Torch/TorchConfig.cmake PATHS ${CMAKE_PREFIX_PATH}
            PATH_SUFFIXES . share/cmake NO_DEFAULT_PATH NO_CACHE)
  if(GRADWIRE_TORCH_GIVEN)
    cmake_path(GET GRADWIRE_TORCH_GIVEN PARENT_PATH Torch_DIR)
  else()
    # Finds the folder only: importing torch would take seconds. If pip isolates the build, it hides
    # torch by PYTHONPATH, which -E ignores.
    foreach(option "" -E)
      execute_process(
        COMMAND ${GRADWIRE_PYTHON} ${option} -c "from importlib.util import find_spec as f
print(f('torch').submodule_search_locations[0])"
        OUTPUT_VARIABLE folder OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
      if(NOT failed)
        break()
      endif()
    endforeach()
    if(failed)
      message(FATAL_ERROR
        "${GRADWIRE_PYTHON} has no PyTorch. Run scripts/setup.sh, or set -DGRADWIRE_PYTHON= to a "
        "Python with PyTorch, or -DTorch_DIR=, or build the layers without libtorch: "
        "-DGRADWIRE_TORCH=OFF.")
    endif()
    set(GRADWIRE_TORCH_CMAKE ${folder}/share/cmake CACHE PATH "The PyTorch wheel's CMake files")
    unset(folder)
  endif()
endif()
if(NOT Torch_DIR)
  set(Torch_DIR ${GRADWIRE_TORCH_CMAKE}/Torch)
endif()

# The oldest release that the sources support; setup.sh and gradwire_metadata.py read this line.
set(GRADWIRE_OLDEST_TORCH 2.11)

# gradwire_torch_release(FOLDER OUT): sets OUT to the minor release (2.13) of the package in FOLDER.
function(gradwire_torch_release folder out)
  file(STRINGS ${folder}/share/cmake/Torch/TorchConfigVersion.cmake version
    REGEX "set\\(PACKAGE_VERSION \"[0-9]")
  string(REGEX MATCH "[0-9]+[.][0-9]+[.][0-9]+" version "${version}")
  if(version VERSION_LESS GRADWIRE_OLDEST_TORCH)
    message(FATAL_ERROR "PyTorch ${version} in ${folder} is too old: gradwire needs PyTorch "
      "${GRADWIRE_OLDEST_TORCH} or newer (pip install --upgrade torch), or builds the layers "
      "without libtorch: -DGRADWIRE_TORCH=OFF.")
  endif()
  string(REGEX MATCH "[0-9]+[.][0-9]+" version "${version}")
  set(${out} ${version} PARENT_SCOPE)
endfunction()

# gradwire_import_torch(TARGET FOLDER): the CPU part of the PyTorch package in FOLDER.
function(gradwire_import_torch target folder)
  add_library(${target}_c10 SHARED IMPORTED GLOBAL)
  set_target_properties(${target}_c10 PROPERTIES IMPORTED_LOCATION ${folder}/lib/libc10.so)
  add_library(${target} SHARED IMPORTED GLOBAL)
  set_target_properties(${target} PROPERTIES
    IMPORTED_LOCATION ${folder}/lib/libtorch_cpu.so
    INTERFACE_INCLUDE_DIRECTORIES "${folder}/include;${folder}/include/torch/csrc/api/include"
    INTERFACE_COMPILE_DEFINITIONS "USE_DISTRIBUTED;USE_C10D_GLOO;USE_RPC;USE_TENSORPIPE"
    INTERFACE_LINK_LIBRARIES ${target}_c10
    # References of libtorch_cpu to the CUDA runtime stay undefined here; it finds the runtime.
    INTERFACE_LINK_OPTIONS -Wl,--allow-shlib-undefined)
endfunction()

cmake_path(SET GRADWIRE_TORCH_FOLDER NORMALIZE ${Torch_DIR}/../../..)
gradwire_torch_release(${GRADWIRE_TORCH_FOLDER} GRADWIRE_TORCH_RELEASE)

# With a wheel built for CUDA (PyPI's only one for x86-64), find_package(Torch) requires a complete
# CUDA toolkit. gradwire needs only the CPU part, which works without one.
if(NOT EXISTS ${GRADWIRE_TORCH_FOLDER}/lib/libtorch_cuda.so)
  set(level_before "${CMAKE_MESSAGE_LOG_LEVEL}")
  set(CMAKE_MESSAGE_LOG_LEVEL ERROR)  # It warns of a static kineto, which only static builds have.
  find_package(Torch REQUIRED)
  set(CMAKE_MESSAGE_LOG_LEVEL "${level_before}")
  unset(level_before)
else()
  message(STATUS "PyTorch in ${GRADWIRE_TORCH_FOLDER} is built with CUDA: using its CPU part")
  gradwire_import_torch(torch ${GRADWIRE_TORCH_FOLDER})
  get_target_property(TORCH_INCLUDE_DIRS torch INTERFACE_INCLUDE_DIRECTORIES)
  set(TORCH_LIBRARIES torch)
endif()
