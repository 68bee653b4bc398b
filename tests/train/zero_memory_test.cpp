#include <atomic>
#include <barrier>
#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "gradwire/base/clock.h"
#include "gradwire/memory/memory_ledger.h"
#include "gradwire/memory/memory_tracker.h"
#include "gradwire/train/checkpoint/checkpoint.h"
#include "gradwire/train/zero/zero.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/torch/loopback.h"
#include "tests/support/torch/thread_group.h"
#include "tests/train/small_models.h"

namespace gradwire::test {
namespace {

constexpr int kPair = 2;
constexpr int kLayers = 8;

constexpr std::int64_t layer_bytes(std::int64_t width) {
  return 4 * (width * width + width);
}

/// Equal units in stage 3, with memory that counts as parameters.
torch::nn::Sequential equal_layers(std::int64_t width) {
  const MemoryScope memory(MemoryCategory::parameters);
  torch::nn::Sequential model;
  for (int i = 0; i < kLayers; ++i) model->push_back(torch::nn::Linear(width, width));
  return model;
}

ZeroOptions bare_options(const ProcessGroup& group, int stage, OptimizerFactory optimizer) {
  return {.process_group = group,
          .stage = stage,
          .optimizer = std::move(optimizer),
          .bucket_cap_mb = 1e-5,
          .min_block_elements = 0,
          .prefetch_elements = 0};
}

/// Leaves the barrier when a rank ends for any reason. The others continue; if the rank threw, they
/// find the group gone instead of waiting for it forever.
class BarrierMember {
 public:
  explicit BarrierMember(std::barrier<>& together) : together_(together) {}
  ~BarrierMember() { together_.arrive_and_drop(); }
  BarrierMember(const BarrierMember&) = delete;
  BarrierMember& operator=(const BarrierMember&) = delete;

 private:
  std::barrier<>& together_;
};

/// Returns peak bytes of parameters, of all ranks together, while a Zero of stage 3 is made. The
/// ranks synchronize when they make an optimizer, so that their progress is equal.
std::int64_t max_parameters_while_made(std::int64_t width,
                                       const OptimizerFactory& optimizer = make_adam) {
  const SteadyClock clock;
  const MemoryTracker tracker(clock);
  std::barrier together(kPair);
  run_on_threads(kPair, [&](const ProcessGroup& group) {
    const BarrierMember member(together);
    const auto make = [&](const std::vector<NamedTensor>& parameters) {
      together.arrive_and_wait();
      return optimizer(parameters);
    };
    const Zero model(equal_layers(width), bare_options(group, 3, make));
  });
  return tracker.ledger().peak().max[static_cast<std::size_t>(MemoryCategory::parameters)];
}

TEST(MemoryOfZero, IsNeverMoreThanTheModelAndAUnitWhileItIsMade) {
  const auto max_bytes = max_parameters_while_made(32);
  EXPECT_LE(max_bytes, kPair * (kLayers + 1) * layer_bytes(32));
  EXPECT_GT(max_bytes, kPair * kLayers * layer_bytes(32));
}

/// Returns live bytes of all ranks together after each of `steps` steps.
std::vector<std::int64_t> bytes_after_steps(int stage, std::int64_t width, int steps,
                                            const OptimizerFactory& optimizer = make_adam) {
  const SteadyClock clock;
  MemoryTracker tracker(clock);
  std::vector<std::int64_t> bytes;
  std::barrier together(kPair);
  run_on_loopback(kPair, [&](const ProcessGroup& group) {
    const BarrierMember member(together);
    Zero model(equal_layers(width), bare_options(group, stage, optimizer));
    const auto input = torch::ones({2, width});
    for (int i = 0; i < steps; ++i) {
      model(input).sum().backward();
      model.step();
      model.finish();
      together.arrive_and_wait();
      if (group->getRank() == 0) bytes.push_back(total_bytes(tracker.ledger().bytes()));
      together.arrive_and_wait();
    }
  });
  return bytes;
}

/// Fails once, at the `many`-th optimizer, on whichever rank makes it.
OptimizerFactory failing_after(int many) {
  return [left = std::make_shared<std::atomic<int>>(many)](std::vector<torch::Tensor> parameters) {
    if ((*left)-- == 0) throw std::runtime_error("this rank fails");
    return make_adam(std::move(parameters));
  };
}

TEST(MemoryOfZero, TestsOfItEndWhenARankFails) {
  EXPECT_THROW(max_parameters_while_made(4, failing_after(3)), std::runtime_error);
  EXPECT_THROW(bytes_after_steps(2, 2, 5, failing_after(3)), std::exception);
}

/// All of the model's checkpoint values, in order.
std::vector<float> pieces_of(Checkpointable& model) {
  std::vector<float> values;
  for (const auto& piece : model.pieces(false)) {
    const auto data = piece.data.to(torch::kFloat32);
    values.insert(values.end(), data.data_ptr<float>(), data.data_ptr<float>() + data.numel());
  }
  return values;
}

/// Saves a model after a step and loads it into another, with or without offloading; returns the
/// peak bytes of optimizer states that loading kept in memory.
std::int64_t max_states_while_loaded(std::int64_t width, bool offload) {
  const TemporaryFolder folder;
  std::int64_t max_bytes = 0;
  run_on_threads(1, [&](const ProcessGroup& group) {
    auto options = bare_options(group, 1, make_adam);
    Zero saved(equal_layers(width), options);
    saved(torch::ones({2, width})).sum().backward();
    saved.step();
    save_checkpoint({.group = group, .model = saved.core()}, 1, {.folder = folder / "saved"});
    if (offload) options.offload_optimizer = folder.path();
    Zero model(equal_layers(width), options);
    const SteadyClock clock;
    const MemoryTracker tracker(clock);
    load_checkpoint(folder / "saved", {.group = group, .model = model.core()});
    max_bytes = tracker.ledger().peak().max[static_cast<std::size_t>(MemoryCategory::optimizer)];
    EXPECT_EQ(pieces_of(model.core()), pieces_of(saved.core()));
  });
  return max_bytes;
}

TEST(MemoryOfZero, LoadingStatesIntoFilesTakesThatOfOneUnit) {
  EXPECT_EQ(max_states_while_loaded(32, false), 2 * kLayers * layer_bytes(32));
  const auto max_bytes = max_states_while_loaded(32, true);
  EXPECT_LE(max_bytes, 2 * layer_bytes(32));
  EXPECT_GT(max_bytes, 0);
}

struct ZeroSteps : ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Stages, ZeroSteps, ::testing::Values(1, 2, 3));

TEST_P(ZeroSteps, NeedNoMoreMemoryThanTheOnesBefore) {
  constexpr int kWarm = 300;
  constexpr int kMeasured = 500;
  const auto bytes = bytes_after_steps(GetParam(), 2, kMeasured);
  ASSERT_EQ(bytes.size(), static_cast<std::size_t>(kMeasured));
  // The number of kept buffers depends on message timing: at most four per rank. A leak of one
  // number per step and rank would exceed that.
  const auto buffers = 4 * kPair * layer_bytes(2);
  static_assert(4 * kPair * layer_bytes(2) < 4 * (kMeasured - kWarm));
  for (std::size_t i = kWarm; i < bytes.size(); ++i) {
    ASSERT_LE(bytes[i], bytes[kWarm] + buffers) << "after step " << i;
  }
  EXPECT_GT(bytes.back(), kPair * kLayers * layer_bytes(2) / 2) << "none counted";
}

}  // namespace
}  // namespace gradwire::test
