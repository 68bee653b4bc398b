# Installation, and the package of find_package(gradwire CONFIG), in the install tree and, without
# installing, in the build tree. Two targets:
#   gradwire::core      every layer below libtorch (COMPONENTS core: needs no PyTorch)
#   gradwire::gradwire  all layers
include(CMakePackageConfigHelpers)
include(GNUInstallDirs)

set(GRADWIRE_CORE_LAYERS base topology schedule codec net engine bootstrap mpi comm trace report
    pipeline checkpoint workload exchange servers step federated)
set(GRADWIRE_TORCH_LAYERS torch data memory host train)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/gradwire)

# The public headers, under src/gradwire: what programs include (docs/library.md). The headers that
# these include are installed too; they are private and may change at any time.
set(GRADWIRE_CORE_HEADERS
  base/box.h
  comm/communicator.h
  engine/engine_traits.h
  engine/simulation.h
  exchange/make_exchange.h
  pipeline/catalogue.h
  pipeline/simulation.h
  pipeline/verifier.h
  schedule/catalogue.h
  schedule/cost/cost.h
  schedule/draw/drawing.h
  schedule/schedule.h
  schedule/verify/verifier.h
  trace/trace_session.h)
set(GRADWIRE_TORCH_HEADERS
  base/log_normal.h
  data/data_set.h
  data/fashion_mnist.h
  data/partition.h
  data/idx.h
  data/prefetch.h
  data/sampler.h
  federated/client_id.h
  federated/device_model.h
  federated/fairness.h
  federated/metrics.h
  federated/partial.h
  federated/quantizer_options.h
  federated/round_policy.h
  federated/round_record.h
  federated/secure/public_key.h
  federated/secure/secure_policy.h
  federated/selection.h
  host/group.h
  host/named_tensor.h
  host/servers/served_embedding.h
  memory/mapped_tensor.h
  memory/memory_tracker.h
  torch/host_grid.h
  torch/hybrid_group.h
  torch/init.h
  train/activation/activation_checkpoint.h
  train/activation/await_parameters.h
  train/checkpoint/checkpoint.h
  train/checkpoint/safetensors.h
  train/data_parallel/accumulate.h
  train/data_parallel/data_parallel.h
  train/device_parallel/device_parallel.h
  train/hogwild/hogwild.h
  train/local_sgd/local_sgd.h
  train/optim/layerwise.h
  train/optim/optimizer_factory.h
  train/optim/ranger_lars.h
  train/optim/rectified_adam.h
  train/optim/yogi.h
  train/parallel/box_exchange.h
  train/parallel_mesh.h
  train/parallel/parallel_conv.h
  train/parallel/parallel_cross_entropy.h
  train/parallel/parallel_embedding.h
  train/parallel/parallel_linear.h
  train/parallel/parallel_module.h
  train/parallel/parallel_norm.h
  train/parallel/rank_functions.h
  train/parallel/sequence_parallel.h
  train/parallel/spatial_layers.h
  train/pipeline/pipeline.h
  train/federated/federated_client.h
  train/federated/federation.h
  train/federated/federation_plan.h
  train/federated/federation_result.h
  train/federated/trainable_module.h
  train/servers/served.h
  train/servers/served_local_steps.h
  train/zero/zero.h)

# gradwire_component(TARGET PUBLIC_NAME EXPORT HEADERS LAYER...): one target for several layers.
# HEADERS: the variable with its public headers.
function(gradwire_component target name export headers)
  add_library(${target} INTERFACE)
  add_library(gradwire::${name} ALIAS ${target})
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${name})
  install(TARGETS ${target} EXPORT ${export})
  foreach(layer ${ARGN})
    if(TARGET gradwire_${layer})
      target_link_libraries(${target} INTERFACE gradwire_${layer})
      set_target_properties(gradwire_${layer} PROPERTIES EXPORT_NAME ${layer})
      install(TARGETS gradwire_${layer} EXPORT ${export}
              ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
    endif()
  endforeach()
  install(CODE "set(headers \"${${headers}}\")\nset(source \"${PROJECT_SOURCE_DIR}/src\")
set(destination \"\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_INCLUDEDIR}\")")
  install(SCRIPT ${PROJECT_SOURCE_DIR}/cmake/GradwireInstallHeaders.cmake)
  install(EXPORT ${export} NAMESPACE gradwire:: FILE ${export}-targets.cmake
          DESTINATION ${package_dir})
  export(EXPORT ${export} NAMESPACE gradwire:: FILE ${PROJECT_BINARY_DIR}/${export}-targets.cmake)
endfunction()

# Exports of static libraries name their private dependencies; being private, they add no flags.
install(TARGETS gradwire_warnings EXPORT gradwire-core)
gradwire_component(gradwire_core core gradwire-core GRADWIRE_CORE_HEADERS
  ${GRADWIRE_CORE_LAYERS})
if(GRADWIRE_TORCH)
  gradwire_component(gradwire_everything gradwire gradwire-torch GRADWIRE_TORCH_HEADERS
    ${GRADWIRE_TORCH_LAYERS})
  target_link_libraries(gradwire_everything INTERFACE gradwire_core torch)
endif()

install(TARGETS gradwire_shared LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(TARGET gradwire-torch)  # In the Python package, and as a separate program.
  gradwire_search_path(gradwire-torch "$ORIGIN/../../torch/lib")
  if(NOT SKBUILD AND NOT GRADWIRE_STATIC)  # Packages for elsewhere name no folder of this machine.
    gradwire_search_path(gradwire-torch "$<TARGET_FILE_DIR:torch>")
  endif()
endif()
foreach(program gradwire gradwire-torch)
  if(TARGET ${program})
    install(TARGETS ${program} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
    gradwire_search_path(${program} "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}")
  endif()
endforeach()

# The same file serves both trees: everything it includes is in its folder.
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/gradwire-config.cmake.in
  ${PROJECT_BINARY_DIR}/gradwire-config.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/gradwire-config-version.cmake
  COMPATIBILITY SameMinorVersion)
configure_file(${PROJECT_SOURCE_DIR}/cmake/GradwireTorch.cmake
  ${PROJECT_BINARY_DIR}/GradwireTorch.cmake COPYONLY)
install(FILES ${PROJECT_BINARY_DIR}/gradwire-config.cmake
  ${PROJECT_BINARY_DIR}/gradwire-config-version.cmake cmake/GradwireTorch.cmake
  DESTINATION ${package_dir})
install(FILES LICENSE README.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
