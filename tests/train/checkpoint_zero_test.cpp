#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/checkpoint/checkpoint_folder.h"
#include "gradwire/checkpoint/checkpoint_reader.h"
#include "gradwire/checkpoint/safetensors_header.h"
#include "gradwire/train/checkpoint/checkpoint.h"
#include "gradwire/train/checkpoint/replicated.h"
#include "gradwire/train/zero/zero.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/torch/loopback.h"
#include "tests/train/small_models.h"

/// Checkpoints between DataParallel and all stages of ZeRO, on different numbers of ranks.
namespace gradwire::test {
namespace {

constexpr int kReplicated = 0;  ///< Used as a stage: DataParallel.

using Content = std::map<std::string, std::vector<std::byte>>;

Content content_of(const std::filesystem::path& folder) {
  const checkpoint::CheckpointReader reader(checkpoint::find_checkpoint(folder));
  Content content;
  for (const auto& tensor : reader.manifest().tensors) {
    auto& bytes = content[tensor.name];
    bytes.resize(static_cast<std::size_t>(checkpoint::elements_of(tensor.shape)) *
                 checkpoint::stored_type_bytes(tensor.type));
    reader.read(tensor, 0, bytes);
  }
  return content;
}

double content_difference(const Content& a, const Content& b) {
  double largest = a.size() == b.size() ? 0 : 1e9;
  for (const auto& [name, bytes] : a) {
    if (name.starts_with("optimizer.step")) continue;
    const auto count = bytes.size() / sizeof(float);
    const auto* first = reinterpret_cast<const float*>(bytes.data());
    const auto* second = reinterpret_cast<const float*>(b.at(name).data());
    for (std::size_t i = 0; i < count; ++i) {
      largest = std::max(largest, std::abs(static_cast<double>(first[i]) - second[i]));
    }
  }
  return largest;
}

torch::nn::Sequential seeded_layers() {
  static std::mutex seed;  // Ranks are threads that share the process's generator.
  const std::lock_guard lock(seed);
  torch::manual_seed(3);
  return torch::nn::Sequential(torch::nn::Linear(30, 170), torch::nn::ReLU(), EmptyTable(),
                               torch::nn::Linear(170, 50), torch::nn::BatchNorm1d(50),
                               torch::nn::Linear(50, 3));
}

/// Takes the same steps on every rank, so that the number of ranks does not matter.
template <class Model>
void train(Model& model, int first, int steps) {
  for (int step = first; step < first + steps; ++step) {
    auto generator = at::make_generator<at::CPUGeneratorImpl>(static_cast<std::uint64_t>(step));
    model(torch::randn({16, 30}, generator)).square().mean().backward();
    model.step();
  }
}

struct CheckpointZero : ::testing::Test {
  CheckpointZero() { at::set_num_threads(1); }

  /// On `ranks` ranks at that stage: loads `from` unless it is empty, takes steps, saves `to`.
  void run(int stage, int ranks, const std::string& from, int first, int steps,
           const std::string& to) {
    run_on_loopback(ranks, [&](const auto& group) {
      const auto go = [&](auto& model, Checkpointable& state) {
        const RunState all{.group = group, .model = state};
        if (!from.empty()) load_checkpoint(folder / from, all);
        train(model, first, steps);
        save_checkpoint(all, first + steps, {.folder = folder / to});
      };
      if (stage == kReplicated) {
        DataParallel model(seeded_layers(), {.process_group = group, .optimizer = make_adam});
        ReplicatedModel state(*model.module(), model.core());
        go(model, state);
      } else {
        Zero model(seeded_layers(),
                   {.process_group = group, .stage = stage, .optimizer = make_adam});
        go(model, model.core());
      }
    });
  }

  TemporaryFolder folder;
};

TEST_F(CheckpointZero, GoesFromAnyStageAndRanksToAnyOther) {
  run(3, 4, "", 0, 3, "0");
  const auto content = content_of(folder / "0");
  ASSERT_TRUE(content.contains("optimizer.exp_avg_sq.3.weight"));
  ASSERT_TRUE(content.contains("4.running_var"));
  ASSERT_TRUE(content.contains("2.table"));
  struct Case {
    int stage, ranks;
  };
  int number = 0;
  for (const auto [stage, ranks] : {Case{kReplicated, 2}, Case{1, 3}, Case{2, 2}, Case{3, 3},
                                    Case{kReplicated, 1}, Case{3, 2}, Case{1, 1}}) {
    run(stage, ranks, std::to_string(number), 3, 0, std::to_string(number + 1));
    ++number;
    EXPECT_EQ(content_of(folder / std::to_string(number)), content)
        << "stage " << stage << " on " << ranks << " ranks";
  }
}

TEST_F(CheckpointZero, GoesOnWithTheSameBitsOnAsManyRanks) {
  for (const int stage : {1, 2, 3}) {
    const auto name = std::to_string(stage);
    run(stage, 2, "", 0, 5, "whole" + name);
    run(stage, 2, "", 0, 3, "half" + name);
    run(stage, 2, "half" + name, 3, 2, "rest" + name);
    EXPECT_EQ(content_of(folder / ("rest" + name)), content_of(folder / ("whole" + name)));
  }
}

TEST_F(CheckpointZero, TheTrainingIsThatOfDataParallel) {
  run(kReplicated, 2, "", 0, 5, "plain");
  run(3, 4, "", 0, 3, "half");
  run(1, 2, "half", 3, 2, "rest");
  EXPECT_LT(content_difference(content_of(folder / "plain"), content_of(folder / "rest")), 1e-5);
}

}  // namespace
}  // namespace gradwire::test
