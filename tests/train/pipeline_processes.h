#pragma once

#include <string>
#include <vector>

#include "gradwire/train/checkpoint/safetensors.h"
#include "tests/support/temporary_folder.h"
#include "tests/train/pipeline_model.h"
#include "tests/train/subprocess.h"

namespace gradwire::test {

/// Trains a model with dropout in processes, which have random numbers of their own: the program
/// pipeline_rank with these options. Returns the parameters and optimizer states of all ranks, of
/// which several may have the same.
inline NamedValues train_in_processes(int ranks, const std::string& schedule,
                                      const std::vector<std::string>& options = {}) {
  const TemporaryFolder folder;
  const auto programs = own_program().parent_path();
  std::vector<std::string> command{
      programs / "gradwire",   "run",      "-n",     std::to_string(ranks), "--",
      programs / "train_rank", "pipeline", schedule, folder.path()};
  command.insert(command.end(), options.begin(), options.end());
  const auto finished = run(command);
  EXPECT_EQ(finished.status, 0) << finished.output;
  NamedValues all;
  for (int rank = 0; rank < ranks; ++rank) {
    const auto file = folder / (std::to_string(rank) + ".safetensors");
    for (const auto& [name, value] : load_safetensors(file).tensors) {
      const auto [place, is_new] = all.emplace(name, value);
      EXPECT_TRUE(is_new || torch::equal(place->second, value)) << name;
    }
  }
  return all;
}

}  // namespace gradwire::test
