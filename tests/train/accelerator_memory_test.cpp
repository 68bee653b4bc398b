#include <barrier>
#include <future>
#include <thread>

#include <c10/util/ThreadLocalDebugInfo.h>
#include <gtest/gtest.h>

#include "gradwire/base/clock.h"
#include "gradwire/base/error.h"
#include "gradwire/memory/memory_ledger.h"
#include "gradwire/memory/memory_tracker.h"
#include "tests/support/torch/loopback.h"
#include "tests/support/torch/queue_device.h"
#include "tests/train/small_models.h"
#include "tests/train/zero_model.h"

/// Classification of an accelerator's memory.
namespace gradwire::test {
namespace {

constexpr int kPairOfRanks = 2;

struct AcceleratorMemory : ::testing::Test {
  AcceleratorMemory() { install_queue_device(); }

  static at::Tensor make(std::int64_t count) { return to_queue_device(at::empty({count}), 0); }
  std::int64_t bytes(MemoryCategory category) const {
    return tracker.ledger().bytes()[static_cast<std::size_t>(category)];
  }
  std::int64_t all() const { return total_bytes(tracker.ledger().bytes()); }

  SteadyClock clock;
  MemoryTracker tracker{clock, at::kPrivateUse1};
};

TEST_F(AcceleratorMemory, IsCountedByScopesAndLabels) {
  auto a = make(100);
  const auto elsewhere = torch::empty({1000});
  EXPECT_EQ(all(), 400) << "the device's alone";
  at::Tensor b;
  {
    const MemoryScope scope(MemoryCategory::activations);
    b = make(10);
  }
  EXPECT_EQ(bytes(MemoryCategory::activations), 40);
  label_memory(a, MemoryCategory::parameters);
  EXPECT_EQ(bytes(MemoryCategory::parameters), 400);
  a.reset();
  EXPECT_EQ(all(), 40);
  EXPECT_EQ(tracker.ledger().peak().bytes, 440);
}

TEST_F(AcceleratorMemory, RelabelsWhatSurvivesAScope) {
  at::Tensor state;
  {
    const KeptMemoryScope scope(MemoryCategory::optimizer);
    const auto temporary = make(10);
    state = make(3);
  }
  EXPECT_EQ(bytes(MemoryCategory::optimizer), 12);
  EXPECT_EQ(all(), 12);
}

TEST_F(AcceleratorMemory, FreesOnOtherThreadsAreCountedAtReuse) {
  int place = 0;
  const auto report = [&](std::int64_t bytes) {
    c10::reportMemoryUsageToProfiler(&place, bytes, 0, 0, queue_device(0));
  };
  report(100);
  std::thread([&] { report(-100); }).join();
  EXPECT_EQ(all(), 100);
  report(70);
  EXPECT_EQ(all(), 70);
  report(-70);
  report(-70);
  EXPECT_EQ(all(), 0) << "what it does not know it does not take off";
}

TEST_F(AcceleratorMemory, RefusesASecondTracker) {
  EXPECT_THROW(MemoryTracker second(clock), Exception);
}

/// A copy holds its tensors until its stream reaches it, which no profiler sees.
void await_stream() {
  std::promise<void> come;
  compute([&] { come.set_value(); });
  come.get_future().wait();
}

/// Bytes of both ranks together after a backward, and after the step.
using Snapshots = std::vector<MemoryBytes>;

Snapshots snapshots_of(int stage, bool accelerator) {
  const SteadyClock clock;
  const MemoryTracker tracker(clock, accelerator ? at::kPrivateUse1 : at::kCPU);
  Snapshots snapshots;
  std::barrier together(kPairOfRanks);
  const auto state = c10::ThreadLocalDebugInfo::current();
  run_on_loopback(kPairOfRanks, [&](const auto& group) {
    const c10::DebugInfoGuard as_there(state);
    const int rank = group->getRank();
    const auto there = [&](const torch::Tensor& tensor) {
      return accelerator ? to_queue_device(tensor, rank) : tensor;
    };
    const auto snapshot = [&] {
      together.arrive_and_wait();
      if (rank == 0) snapshots.push_back(tracker.ledger().bytes());
      together.arrive_and_wait();
    };
    torch::nn::Linear module(30, 20);
    for (auto& parameter : module->parameters()) {
      if (accelerator) move_to_queue_device(parameter, rank);
    }
    Zero model(module, {.process_group = group,
                        .stage = stage,
                        .optimizer = make_adam,
                        .overlap = step::Overlap::backward,
                        .min_block_elements = 0});
    for (int step = 0; step < 2; ++step) {
      model(there(torch::ones({5, 30}))).sum().backward();
      snapshot();
      model.step();
      model.finish();
      snapshot();
    }
    if (accelerator) await_stream();
  });
  snapshots.push_back(tracker.ledger().bytes());
  return snapshots;
}

class AcceleratorMemoryOfZero : public ::testing::TestWithParam<int> {};

TEST_P(AcceleratorMemoryOfZero, IsWhatItTakesOnTheCpu) {
  install_queue_device();
  const auto cpu = snapshots_of(GetParam(), false);
  const auto device = snapshots_of(GetParam(), true);
  ASSERT_EQ(cpu.size(), device.size());
  for (std::size_t i = 0; i < cpu.size(); ++i) {
    for (const auto category : {MemoryCategory::parameters, MemoryCategory::gradients,
                                MemoryCategory::optimizer, MemoryCategory::communication}) {
      const auto index = static_cast<std::size_t>(category);
      EXPECT_EQ(cpu[i][index], device[i][index]) << "snapshot " << i << ", category " << index;
    }
  }
  EXPECT_GT(device[1][static_cast<std::size_t>(MemoryCategory::optimizer)], 0);
  EXPECT_EQ(total_bytes(device.back()), 0) << "all is freed, and known to be";
}

INSTANTIATE_TEST_SUITE_P(Stages, AcceleratorMemoryOfZero, ::testing::Values(1, 2, 3));

}  // namespace
}  // namespace gradwire::test
