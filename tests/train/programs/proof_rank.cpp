// One process of the equality proof: proof_rank sgd|adam FOLDER.
#include <filesystem>
#include <string>

#include "gradwire/torch/init.h"
#include "gradwire/train/checkpoint/safetensors.h"
#include "tests/train/programs/ranks.h"
#include "tests/train/proof_model.h"

int gradwire::test::proof_rank(int argc, char** argv) {
  if (argc != 3) return 2;
  at::set_num_threads(1);
  const auto group = gradwire::init();
  using gradwire::test::Rule;
  const auto rule = std::string(argv[1]) == "adam" ? Rule::adam : Rule::sgd_with_momentum;
  std::vector<gradwire::NamedTensor> result;
  for (const auto& [name, tensor] : gradwire::test::train_proof_net(group, rule, 50)) {
    result.push_back({name, tensor});
  }
  const auto file = std::to_string(group->getRank()) + ".safetensors";
  gradwire::save_safetensors(std::filesystem::path(argv[2]) / file, result);
  group->barrier()->wait();
  return 0;
}
