// One process of a pipeline with dropout:
// pipeline_rank SCHEDULE FOLDER [plain] [tied] [clipped] [recompute] [evaluated] [coded]
//               [replicated|halved|doubled]
// plain: without dropout; evaluated: in the middle; coded: with codecs that draw random numbers
// replicated: two pipelines, which train on the same batches
// halved: two pipelines, each of which trains on half of each batch
// doubled: one pipeline, with the batches of halved and twice as many micro-batches
#include <algorithm>
#include <filesystem>
#include <string>
#include <string_view>

#include "gradwire/torch/init.h"
#include "gradwire/train/checkpoint/safetensors.h"
#include "gradwire/train/parallel_mesh.h"
#include "tests/train/pipeline_model.h"
#include "tests/train/programs/ranks.h"

int gradwire::test::pipeline_rank(int argc, char** argv) {
  if (argc < 3) return 2;
  const auto has = [&](std::string_view option) {
    return std::find(argv + 3, argv + argc, option) != argv + argc;
  };
  at::set_num_threads(1);
  const auto group = gradwire::init();
  const int replicas = has("replicated") || has("halved") ? 2 : 1;
  const gradwire::ParallelMesh mesh(group,
                                    {.data = replicas, .pipeline = group->getSize() / replicas});
  torch::manual_seed(11);
  gradwire::Layers layers = gradwire::test::pipeline_layers(has("plain") ? 0 : 0.3);
  if (has("tied")) layers = gradwire::test::with_ties(layers);
  auto options = gradwire::test::pipeline_options(mesh.pipeline(), argv[1], 4);
  options.data = {.process_group = mesh.data()};
  const bool compares = has("halved") || has("doubled");
  if (has("coded")) options.activation_codec = {"rotation:4", "rotation:4"};
  if (has("doubled")) options.micro_batches = 8;
  if (has("clipped")) options.clip_norm = 0.05;
  options.recompute = has("recompute");
  gradwire::Pipeline model(layers, options);
  for (int step = 0; step < (compares ? 8 : 50); ++step) {
    auto batch = gradwire::test::pipeline_batch(compares ? 16 : 7, step);
    if (has("halved")) {
      const int half = 8 * mesh.position().data;
      batch = {batch.inputs.narrow(0, half, 8), batch.targets.narrow(0, half, 8)};
    }
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
  return 0;
}
