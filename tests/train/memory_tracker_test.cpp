#include "gradwire/memory/memory_tracker.h"

#include <memory>
#include <thread>
#include <vector>

#include <ATen/ThreadLocalState.h>
#include <c10/core/CPUAllocator.h>
#include <gtest/gtest.h>

#include "gradwire/base/clock.h"
#include "gradwire/base/error.h"
#include "gradwire/memory/mapped_tensor.h"
#include "gradwire/memory/memory_ledger.h"
#include "tests/support/temporary_folder.h"

namespace gradwire::test {
namespace {

struct Tracker : ::testing::Test {
  SteadyClock clock;
  MemoryTracker tracker{clock};

  std::int64_t bytes(MemoryCategory category) const {
    return tracker.ledger().bytes()[static_cast<std::size_t>(category)];
  }
  std::int64_t all() const { return total_bytes(tracker.ledger().bytes()); }
};

TEST_F(Tracker, CountsWhatIsInUse) {
  auto a = torch::empty({100});
  EXPECT_EQ(all(), 400);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(a.data_ptr()) % 64, 0u);
  const auto view = a.view({10, 10});
  a.reset();
  EXPECT_EQ(all(), 400) << "the view holds it";
}

TEST_F(Tracker, CountsNothingForNoElements) {
  const auto a = torch::empty({0});
  EXPECT_EQ(all(), 0);
}

TEST_F(Tracker, SeesOtherThreadsAndReplacedMemory) {
  auto a = torch::ones({100});
  std::thread([&a] { a.resize_({1000}); }).join();
  EXPECT_EQ(all(), 4000);
  EXPECT_EQ(a.narrow(0, 0, 100).sum().item<float>(), 100) << "resize_ keeps what there was";
  std::thread([b = std::move(a)]() mutable { b.reset(); }).join();
  EXPECT_EQ(all(), 0);
}

TEST_F(Tracker, CountsForTheInnermostScope) {
  const MemoryScope outer(MemoryCategory::parameters);
  const auto a = torch::empty({1});
  torch::Tensor b;
  {
    const MemoryScope inner(MemoryCategory::activations);
    b = torch::empty({2});
  }
  const auto c = torch::empty({4});
  EXPECT_EQ(bytes(MemoryCategory::parameters), 20);
  EXPECT_EQ(bytes(MemoryCategory::activations), 8);
}

TEST_F(Tracker, AutogradsThreadsInheritTheScope) {
  const MemoryScope scope(MemoryCategory::activations);
  torch::Tensor a;
  torch::Tensor b;
  // The engine passes the state of the thread that called backward to its threads in this way.
  std::thread([&, state = at::ThreadLocalState()] {
    a = torch::empty({1});
    const at::ThreadLocalStateGuard guard(state);
    b = torch::empty({2});
  }).join();
  EXPECT_EQ(bytes(MemoryCategory::other), 4);
  EXPECT_EQ(bytes(MemoryCategory::activations), 8);
}

TEST_F(Tracker, KeepsWhatSurvivesAScope) {
  torch::Tensor state;
  {
    const KeptMemoryScope scope(MemoryCategory::optimizer);
    const auto temporary = torch::empty({10});
    state = torch::empty({3});
    EXPECT_EQ(bytes(MemoryCategory::other), 52);
  }
  EXPECT_EQ(bytes(MemoryCategory::optimizer), 12);
  EXPECT_EQ(bytes(MemoryCategory::other), 0);
}

TEST_F(Tracker, LabelsAfterwards) {
  const auto a = torch::empty({5});
  label_memory(a.narrow(0, 1, 1), MemoryCategory::communication);
  EXPECT_EQ(bytes(MemoryCategory::communication), 20) << "the whole storage";
  float foreign[2] = {};
  label_memory(torch::from_blob(foreign, {2}), MemoryCategory::communication);
  EXPECT_EQ(bytes(MemoryCategory::communication), 20);
}

TEST_F(Tracker, TellsGradientsFromWhatBackwardMakesOnTheWay) {
  torch::nn::Linear layer(3, 2);
  const ParameterLabels labels(layer->parameters());
  EXPECT_EQ(bytes(MemoryCategory::parameters), 32);
  layer->forward(torch::ones({1, 3})).sum().backward();
  EXPECT_EQ(bytes(MemoryCategory::gradients), 32);
  layer->zero_grad();
  EXPECT_EQ(bytes(MemoryCategory::gradients), 0);
}

TEST_F(Tracker, RefusesASecond) {
  EXPECT_THROW(MemoryTracker second(clock), Exception);
}

TEST_F(Tracker, IsAnAllocatorLikeLibtorchs) {
  auto* allocator = c10::GetCPUAllocator();
  void* memory = allocator->raw_allocate(100);
  EXPECT_EQ(all(), 100);
  allocator->raw_deallocate(memory);
  EXPECT_EQ(all(), 0);
}

TEST(MemoryTracker, TensorsMayOutliveIt) {
  const SteadyClock clock;
  auto* before = c10::GetCPUAllocator();
  torch::Tensor a;
  {
    MemoryTracker tracker(clock);
    a = torch::ones({10});
  }
  EXPECT_EQ(c10::GetCPUAllocator(), before);
  EXPECT_EQ(a.resize_({20}).narrow(0, 0, 10).sum().item<float>(), 10);
}

TEST(MemoryTracker, WithoutOneScopesAreNothing) {
  const MemoryScope scope(MemoryCategory::activations);
  const KeptMemoryScope kept(MemoryCategory::optimizer);
  label_memory(torch::ones({1}), MemoryCategory::other);
  EXPECT_EQ(c10::ThreadLocalDebugInfo::current(), nullptr);
}

TEST(MappedTensor, IsInAFileAndNotInMemory) {
  const TemporaryFolder folder;
  const SteadyClock clock;
  MemoryTracker tracker(clock);
  auto a = mapped_tensor(folder.path(), {3, 4}, torch::kFloat32);
  EXPECT_LT(total_bytes(tracker.ledger().bytes()), 48);
  EXPECT_EQ(a.abs().sum().item<float>(), 0);
  a.fill_(2);
  a.add_(1);
  EXPECT_EQ(a.sum().item<float>(), 36);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path())) << "nobody need tidy up";
  EXPECT_THROW(mapped_tensor(folder / "none", {1}, torch::kFloat32), Exception);
}

TEST(MappedTensor, TakesTheMemoryOfAnother) {
  const TemporaryFolder folder;
  const SteadyClock clock;
  MemoryTracker tracker(clock);
  const auto a = torch::arange(1000).to(torch::kFloat32);
  const auto view = a.narrow(0, 10, 5);
  move_to_file(a, folder.path());
  EXPECT_EQ(total_bytes(tracker.ledger().bytes()), 0);
  EXPECT_EQ(view.sum().item<float>(), 60);
  view.zero_();
  EXPECT_EQ(a.sum().item<float>(), 499500 - 60);
}

}  // namespace
}  // namespace gradwire::test
