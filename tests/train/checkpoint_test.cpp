#include "gradwire/train/checkpoint/checkpoint.h"

#include <cstdlib>
#include <fstream>
#include <mutex>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gradwire/base/error.h"
#include "gradwire/base/random.h"
#include "gradwire/checkpoint/checkpoint_folder.h"
#include "gradwire/checkpoint/consolidate.h"
#include "gradwire/train/checkpoint/optimizer_state.h"
#include "gradwire/train/checkpoint/replicated.h"
#include "gradwire/train/checkpoint/safetensors.h"
#include "gradwire/train/lamb.h"
#include "gradwire/train/lars.h"
#include "tests/checkpoint/mortal_disk.h"
#include "tests/data/idx_files.h"
#include "tests/data/temporary_folder.h"
#include "tests/train/subprocess.h"
#include "tests/train/thread_group.h"

namespace gradwire::test {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

/// Convolution (not row-major in memory), batch norm (buffers), a frozen layer, large enough for
/// its tensors to be divided.
torch::nn::Sequential small_model(std::int64_t width = 40) {
  torch::nn::Conv2d convolution(3, 4, 3);
  convolution->weight.set_data(convolution->weight.contiguous(torch::MemoryFormat::ChannelsLast));
  torch::nn::Linear frozen(4, 4);
  for (auto& parameter : frozen->parameters()) parameter.set_requires_grad(false);
  return torch::nn::Sequential(convolution, torch::nn::BatchNorm2d(4), torch::nn::Flatten(),
                               torch::nn::Linear(4 * 36, width), torch::nn::ReLU(),
                               torch::nn::Linear(width, 4), frozen);
}

using MakeOptimizer =
    std::function<std::unique_ptr<torch::optim::Optimizer>(std::vector<torch::Tensor>)>;

template <class Optimizer, class Options>
MakeOptimizer making(Options options) {
  return [options](std::vector<torch::Tensor> parameters) {
    return std::make_unique<Optimizer>(std::move(parameters), options);
  };
}

MakeOptimizer adam() {
  return making<torch::optim::Adam>(torch::optim::AdamOptions(0.01).amsgrad(true));
}

/// A model in training on one rank.
struct Trained {
  Trained(const ProcessGroup& of, const MakeOptimizer& optimizer, torch::nn::Sequential module)
      : group(of),
        model(std::move(module), {.process_group = of, .optimizer = optimizer}),
        state(*model.module(), model.core()) {}

  /// The same on all ranks, whatever their number.
  void step(int number) {
    auto generator = at::make_generator<at::CPUGeneratorImpl>(static_cast<std::uint64_t>(number));
    const auto inputs = torch::randn({8, 3, 8, 8}, generator);
    model(inputs).square().mean().backward();
    model.step();
  }

  RunState run() { return {.group = group, .model = state, .description = R"({"name":"small"})"}; }

  /// Copies of everything, by name.
  std::map<std::string, torch::Tensor> all() {
    std::map<std::string, torch::Tensor> copies;
    for (const auto& piece : state.pieces(false)) {
      copies[piece.name] = piece.data.clone().view(piece.shape);
    }
    return copies;
  }

  ProcessGroup group;
  DataParallel<torch::nn::Sequential> model;
  ReplicatedModel state;
};

torch::nn::Sequential seeded_model(std::int64_t width) {
  static std::mutex seed;  // The generator is the process's, and ranks are threads.
  const std::lock_guard lock(seed);
  torch::manual_seed(5);
  return small_model(width);
}

std::unique_ptr<Trained> trained(const ProcessGroup& group, const MakeOptimizer& optimizer,
                                 int steps, std::int64_t width = 40) {
  auto made = std::make_unique<Trained>(group, optimizer, seeded_model(width));
  for (int i = 0; i < steps; ++i) made->step(i);
  return made;
}

bool same(const std::map<std::string, torch::Tensor>& a,
          const std::map<std::string, torch::Tensor>& b) {
  return a.size() == b.size() && std::ranges::all_of(a, [&b](const auto& item) {
           return b.contains(item.first) && item.second.equal(b.at(item.first));
         });
}

struct CheckpointTest : ::testing::Test {
  CheckpointTest() { at::set_num_threads(1); }

  /// Saves a model after three steps; returns all that was in it.
  std::map<std::string, torch::Tensor> save_on(int ranks, const MakeOptimizer& optimizer = adam()) {
    std::map<std::string, torch::Tensor> saved;
    run_on_threads(ranks, [&](const auto& group) {
      const auto model = trained(group, optimizer, 3);
      save_checkpoint(model->run(), 3, {.folder = place});
      if (group->getRank() == 0) saved = model->all();
    });
    return saved;
  }

  std::vector<std::string> errors_of_loading(int ranks, const MakeOptimizer& optimizer = adam(),
                                             std::int64_t width = 40) {
    return errors_on_threads(ranks, [&](const auto& group) {
      load_checkpoint(place, trained(group, optimizer, 0, width)->run());
    });
  }

  TemporaryFolder folder;
  std::filesystem::path place = folder / "checkpoints";
};

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
  const auto manifest = read_manifest(find_checkpoint(place));
  std::uint64_t least = ~0ull;
  std::uint64_t most = 0;
  for (const auto& file : manifest.files) {
    least = std::min(least, file.bytes);
    most = std::max(most, file.bytes);
  }
  EXPECT_LT(static_cast<double>(most), 1.1 * static_cast<double>(least));
}

TEST_F(CheckpointTest, StatesOfEveryOptimiserGoOnWithTheSameBits) {
  namespace optim = torch::optim;
  const std::vector<MakeOptimizer> optimizers{
      making<optim::SGD>(optim::SGDOptions(0.1)),
      making<optim::SGD>(optim::SGDOptions(0.1).momentum(0.9).dampening(0.1)),
      adam(),
      making<optim::AdamW>(optim::AdamWOptions(0.01)),
      making<optim::RMSprop>(optim::RMSpropOptions(0.01).momentum(0.9).centered(true)),
      making<optim::Adagrad>(optim::AdagradOptions(0.01)),
      making<Lars>(LarsOptions(1)),
      making<Lamb>(LambOptions(0.01))};
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
    EXPECT_TRUE(std::filesystem::exists(here / kManifestName));
    EXPECT_FALSE(std::filesystem::exists(of_host(host) / "step-000002"));
    EXPECT_EQ(std::filesystem::exists(here / shard_name(1, 4)), host == 0);
    EXPECT_EQ(std::filesystem::exists(here / shard_name(2, 4)), host == 1);
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
              Each(AllOf(HasSubstr("'momentum_buffer' of '"), HasSubstr("another optimiser"))));
  EXPECT_THAT(errors_of_loading(1, making<optim::SGD>(optim::SGDOptions(0.1))),
              Each(AllOf(HasSubstr("'step' of '"), HasSubstr("has no place in this run"))));
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

TEST_F(CheckpointTest, DamageIsTheSameErrorOnAllRanks) {
  save_on(4);
  const auto file = find_checkpoint(place) / shard_name(2, 4);
  {
    std::fstream bytes(file, std::ios::in | std::ios::out | std::ios::binary);
    bytes.seekp(-20, std::ios::end);
    bytes.put('\x55');
  }
  EXPECT_THAT(errors_of_loading(3), Each(AllOf(HasSubstr("rank-2-of-4"), HasSubstr("CRC-32C"))));
  std::filesystem::resize_file(file, 1000);
  EXPECT_THAT(errors_of_loading(3), Each(AllOf(HasSubstr("rank-2-of-4"), HasSubstr("damaged"))));
}

TEST_F(CheckpointTest, AFullDiskOnOneRankIsAnErrorOnAllAndLeavesTheOldOne) {
  const auto saved = save_on(2);
  MortalDisk full(4, false);
  const auto errors = errors_on_threads(2, [&](const auto& group) {
    const auto model = trained(group, adam(), 4);
    auto* disk = group->getRank() == 1 ? &full : nullptr;
    save_checkpoint(model->run(), 4, {.folder = place, .keep = 1, .disk = disk});
  });
  EXPECT_THAT(errors, Each(AllOf(HasSubstr("rank 1"), HasSubstr("the disk is full"))));
  EXPECT_EQ(list_checkpoints(place).size(), 1u);
  const auto entries = std::filesystem::directory_iterator(place);
  EXPECT_EQ(std::distance(begin(entries), end(entries)), 1) << "nothing is left over";
}

/// A process in which two ranks save four checkpoints, and which dies at that call to the system.
int save_until_killed(const std::filesystem::path& place, std::int64_t call) {
  const auto child = ::fork();
  if (child == 0) {
    MortalDisk disk(call, true);
    run_on_threads(2, [&](const auto& group) {
      torch::nn::Sequential model(torch::nn::Linear(90, 90));
      DataParallel parallel(model, {.process_group = group});
      ReplicatedModel state(*parallel.module(), parallel.core());
      for (int step = 1; step <= 4; ++step) {
        for (const auto& piece : state.pieces(false)) piece.data.fill_(step);
        save_checkpoint({.group = group, .model = state}, step,
                        {.folder = place, .keep = 2, .disk = &disk});
      }
    });
    ::_exit(static_cast<int>(std::min<std::int64_t>(disk.calls(), 255)));
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

TEST_F(CheckpointTest, KilledAtTwoHundredRandomPointsTheLastCompleteOneIsWhole) {
  const int calls = save_until_killed(folder / "whole", -1);
  ASSERT_GT(calls, 60);
  ASSERT_LT(calls, 255);
  Random random(11);
  int with_some = 0;
  for (int point = 0; point < 200; ++point) {
    const auto here = folder / std::to_string(point);
    // Which rank makes the folder is open, and so the number of calls, by a few.
    const auto call = random.between(0, calls - 5);
    ASSERT_EQ(save_until_killed(here, call), -SIGKILL) << "call " << call;
    for (const auto& found : list_checkpoints(here)) {
      ASSERT_EQ(found.damage, "") << "call " << call;
      const CheckpointReader reader(found.path);
      ASSERT_NO_THROW(reader.verify());
      std::vector<float> weights(8100);
      reader.read(reader.manifest().tensors.at(0), 0, std::as_writable_bytes(std::span(weights)));
      EXPECT_THAT(weights, Each(static_cast<float>(found.step))) << "call " << call;
    }
    with_some += list_checkpoints(here).empty() ? 0 : 1;
    std::filesystem::remove_all(here);
    if (HasFailure()) return;
  }
  EXPECT_GT(with_some, 100);
}

TEST_F(CheckpointTest, PythonReadsAllOfIt) {
  const auto* python = std::getenv("GRADWIRE_PYTHON");
  ASSERT_NE(python, nullptr) << "the build sets GRADWIRE_PYTHON to a Python with PyTorch";
  const auto saved = save_on(3);
  std::vector<NamedTensor> tensors;
  for (const auto& [name, tensor] : saved) tensors.push_back({name, tensor});
  save_safetensors(folder / "expected.safetensors", tensors);
  consolidate(CheckpointReader(find_checkpoint(place)), folder / "one.safetensors", true);
  const auto finished =
      run({python, GRADWIRE_SOURCE "/tests/train/programs/read_checkpoint.py", folder.path()});
  EXPECT_EQ(finished.status, 0) << finished.output;
  EXPECT_THAT(finished.output, HasSubstr("all right"));
}

}  // namespace
}  // namespace gradwire::test
