// One process of a pipeline with dropout:
// pipeline_rank SCHEDULE FOLDER [tied] [clipped] [recompute] [replicated] [evaluated]
// replicated: two pipelines, which train on the same batches; evaluated: in the middle
#include <algorithm>
#include <filesystem>
#include <string>
#include <string_view>

#include "gradwire/torch/init.h"
#include "gradwire/train/checkpoint/safetensors.h"
#include "gradwire/train/parallel_mesh.h"
#include "tests/train/pipeline_model.h"

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  const auto has = [&](std::string_view option) {
    return std::find(argv + 3, argv + argc, option) != argv + argc;
  };
  at::set_num_threads(1);
  const auto group = gradwire::init();
  const int replicas = has("replicated") ? 2 : 1;
  const gradwire::ParallelMesh mesh(group,
                                    {.data = replicas, .pipeline = group->getSize() / replicas});
  torch::manual_seed(11);
  gradwire::Layers layers = gradwire::test::pipeline_layers(0.3);
  if (has("tied")) layers = gradwire::test::with_ties(layers);
  auto options = gradwire::test::pipeline_options(mesh.pipeline(), argv[1], 4);
  options.data = {.process_group = mesh.data()};
  if (has("clipped")) options.clip_norm = 0.05;
  options.recompute = has("recompute");
  gradwire::Pipeline model(layers, options);
  for (int step = 0; step < 50; ++step) {
    const auto batch = gradwire::test::pipeline_batch(7, step);
    model.train_step(batch.inputs, batch.targets);
    if (step == 25 && has("evaluated")) model.evaluate(batch.inputs);
  }
  std::vector<gradwire::NamedTensor> result;
  for (const auto& [name, tensor] : gradwire::test::state_values(model)) {
    result.push_back({name, tensor});
  }
  const auto file = std::to_string(group->getRank()) + ".safetensors";
  gradwire::save_safetensors(std::filesystem::path(argv[2]) / file, result);
  group->barrier()->wait();
}
