#include "gradwire/train/checkpoint/checkpoint.h"

#include <cstdlib>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/checkpoint/checkpoint_folder.h"
#include "gradwire/checkpoint/checkpoint_reader.h"
#include "gradwire/checkpoint/consolidate.h"
#include "gradwire/train/checkpoint/optimizer_state.h"
#include "gradwire/train/checkpoint/safetensors.h"
#include "gradwire/train/optim/layerwise.h"
#include "gradwire/train/optim/ranger_lars.h"
#include "gradwire/train/optim/rectified_adam.h"
#include "gradwire/train/optim/yogi.h"
#include "tests/train/checkpoint_fixture.h"
#include "tests/train/subprocess.h"

namespace gradwire::test {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

TEST_F(CheckpointTest, OfFourRanksIsLoadedOnAnyNumber) {
  const auto saved = save_on(4);
  ASSERT_TRUE(saved.contains("optimizer.max_exp_avg_sq.3.weight"));
  ASSERT_TRUE(saved.contains("1.running_mean"));
  EXPECT_EQ(saved.at("optimizer.step.0.weight").item<std::int64_t>(), 3);
  for (const int ranks : {1, 2, 3, 4, 8}) {
    run_on_threads(ranks, [&](const auto& group) {
      const auto model = trained(group, adam(), 0);
      const auto resumed = load_checkpoint(place, model->run());
      EXPECT_EQ(resumed.step, 3);
      EXPECT_TRUE(same(model->all(), saved)) << ranks << " ranks";
    });
  }
}

TEST_F(CheckpointTest, EachRankWritesAboutAsMuch) {
  save_on(4);
  const auto manifest = checkpoint::read_manifest(checkpoint::find_checkpoint(place));
  std::uint64_t min = ~0ull;
  std::uint64_t max = 0;
  for (const auto& file : manifest.files) {
    min = std::min(min, file.bytes);
    max = std::max(max, file.bytes);
  }
  EXPECT_LT(static_cast<double>(max), 1.1 * static_cast<double>(min));
}

TEST_F(CheckpointTest, OptimizerStatesResumeBitwiseEqual) {
  namespace optim = torch::optim;
  const std::vector<MakeOptimizer> optimizers{
      making<optim::SGD>(optim::SGDOptions(0.1)),
      making<optim::SGD>(optim::SGDOptions(0.1).momentum(0.9).dampening(0.1)),
      adam(),
      making<optim::AdamW>(optim::AdamWOptions(0.01)),
      making<optim::RMSprop>(optim::RMSpropOptions(0.01).momentum(0.9).centered(true)),
      making<optim::Adagrad>(optim::AdagradOptions(0.01)),
      making<Lars>(LarsOptions(1)),
      making<Lamb>(LambOptions(0.01)),
      making<RAdam>(RAdamOptions(0.01)),
      making<Yogi>(YogiOptions(0.01)),
      making<RangerLars>(RangerLarsOptions(0.01).lookahead_steps(2))};
  for (std::size_t i = 0; i < optimizers.size(); ++i) {
    run_on_threads(1, [&](const auto& group) {
      const auto whole = trained(group, optimizers[i], 3);
      save_checkpoint(whole->run(), 3, {.folder = place});
      const auto resumed = trained(group, optimizers[i], 0);
      load_checkpoint(place, resumed->run());
      whole->step(3);
      resumed->step(3);
      EXPECT_TRUE(same(whole->all(), resumed->all())) << "optimiser " << i;
    });
  }
}

TEST_F(CheckpointTest, HostsThatSeeOnlyTheirOwnFilesReadThemToEachOther) {
  const auto of_host = [this](int host) { return folder / ("host" + std::to_string(host)); };
  std::map<std::string, torch::Tensor> saved;
  run_on_threads(4, [&](const auto& group) {
    const auto model = trained(group, adam(), 3);
    for (const int step : {1, 2, 3}) {
      save_checkpoint(model->run(), step, {.folder = of_host(group->getRank() / 2), .keep = 1});
    }
    if (group->getRank() == 0) saved = model->all();
  });
  for (const int host : {0, 1}) {
    const auto here = of_host(host) / "step-000003";
    EXPECT_TRUE(std::filesystem::exists(here / checkpoint::kManifestName));
    EXPECT_FALSE(std::filesystem::exists(of_host(host) / "step-000002"));
    EXPECT_EQ(std::filesystem::exists(here / checkpoint::shard_name(1, 4)), host == 0);
    EXPECT_EQ(std::filesystem::exists(here / checkpoint::shard_name(2, 4)), host == 1);
  }
  for (const int ranks : {2, 4}) {
    run_on_threads(ranks, [&](const auto& group) {
      const auto model = trained(group, adam(), 0);
      load_checkpoint(of_host(2 * group->getRank() / ranks), model->run());
      EXPECT_TRUE(same(model->all(), saved));
    });
  }
}

TEST_F(CheckpointTest, AnotherModelOrOptimiserIsTheSameErrorOnAllRanks) {
  save_on(2);
  EXPECT_THAT(errors_of_loading(2, adam(), 41),
              Each(AllOf(HasSubstr("'3.weight' has shape [40, 144]"), HasSubstr("rank-0-of-2"),
                         HasSubstr("[41, 144]"), HasSubstr(R"({"name":"small"})"))));
  namespace optim = torch::optim;
  EXPECT_THAT(errors_of_loading(3, making<optim::SGD>(optim::SGDOptions(0.1).momentum(0.9))),
              Each(AllOf(HasSubstr("'momentum_buffer' of '"), HasSubstr("another optimizer"))));
  EXPECT_THAT(errors_of_loading(1, making<optim::SGD>(optim::SGDOptions(0.1))),
              Each(AllOf(HasSubstr("'step' of '"), HasSubstr("does not exist in this run"))));
}

TEST_F(CheckpointTest, LayersMoreOrLessAreErrors) {
  run_on_threads(1, [&](const auto& group) {
    torch::nn::Sequential two(torch::nn::Linear(2, 2), torch::nn::Linear(2, 2));
    torch::nn::Sequential one(torch::nn::Linear(2, 2));
    const auto error_of = [&](auto& saved, auto& loaded) {
      const TemporaryFolder here;
      DataParallel first(saved, {.process_group = group});
      DataParallel second(loaded, {.process_group = group});
      ReplicatedModel from(*first.module(), first.core());
      ReplicatedModel to(*second.module(), second.core());
      save_checkpoint({.group = group, .model = from}, 1, {.folder = here.path()});
      try {
        load_checkpoint(here.path(), {.group = group, .model = to});
      } catch (const Exception& error) {
        return std::string(error.what());
      }
      return std::string("no error");
    };
    EXPECT_THAT(error_of(one, two), AllOf(HasSubstr("'1.weight'"), HasSubstr("is not in")));
    EXPECT_THAT(error_of(two, one), AllOf(HasSubstr("'1.weight'"), HasSubstr("is not in this")));
  });
}

#ifdef GRADWIRE_PYTHON_PATH  // The folder of the built Python package.
TEST_F(CheckpointTest, PythonReadsAllOfIt) {
  const auto* python = std::getenv("GRADWIRE_PYTHON");
  ASSERT_NE(python, nullptr) << "the build sets GRADWIRE_PYTHON to a Python with PyTorch";
  const auto saved = save_on(3);
  std::vector<NamedTensor> tensors;
  for (const auto& [name, tensor] : saved) tensors.push_back({name, tensor});
  save_safetensors(folder / "expected.safetensors", tensors);
  checkpoint::consolidate(checkpoint::CheckpointReader(checkpoint::find_checkpoint(place)),
                          folder / "one.safetensors", true);
  const auto finished =
      run({python, GRADWIRE_SOURCE "/tests/train/programs/read_checkpoint.py", folder.path()},
          {{"PYTHONPATH", GRADWIRE_PYTHON_PATH}});
  EXPECT_EQ(finished.status, 0) << finished.output;
  EXPECT_THAT(finished.output, HasSubstr("all right"));
}
#endif

}  // namespace
}  // namespace gradwire::test
