#include "gradwire/memory/memory_ledger.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gradwire::test {
namespace {

using std::chrono::seconds;

struct HandClock final : Clock {
  Time now() const override { return time; }
  Time time{};
};

constexpr auto kParameters = MemoryCategory::parameters;
constexpr auto kActivations = MemoryCategory::activations;
constexpr std::int64_t kMiB = 1 << 20;

std::int64_t of(const MemoryBytes& bytes, MemoryCategory category) {
  return bytes[static_cast<std::size_t>(category)];
}

struct Ledger : ::testing::Test {
  HandClock clock;
  MemoryLedger ledger{clock, 8};
  std::vector<MemoryBlock> blocks = std::vector<MemoryBlock>(64);

  void add(std::size_t block, std::int64_t bytes, MemoryCategory category = kActivations,
           std::uint32_t scope = 0) {
    clock.time += seconds(1);
    ledger.add(blocks[block], bytes, category, scope);
  }
  void remove(std::size_t block) {
    clock.time += seconds(1);
    ledger.remove(blocks[block]);
  }
};

TEST_F(Ledger, CountsByCategory) {
  add(0, 5, kParameters);
  add(1, 7);
  add(2, 11);
  EXPECT_EQ(of(ledger.bytes(), kParameters), 5);
  EXPECT_EQ(of(ledger.bytes(), kActivations), 18);
  remove(1);
  EXPECT_EQ(of(ledger.bytes(), kActivations), 11);
  ledger.relabel(blocks[2], kParameters);
  EXPECT_EQ(of(ledger.bytes(), kParameters), 16);
  EXPECT_EQ(total_bytes(ledger.bytes()), 16);
  remove(0);
  remove(2);
  EXPECT_EQ(total_bytes(ledger.bytes()), 0);
}

TEST_F(Ledger, PeakIsOfOneMomentAndOfEachCategory) {
  add(0, 10, kParameters);
  add(1, 5);
  remove(0);
  add(2, 8);
  EXPECT_EQ(ledger.peak().bytes, 15);
  EXPECT_EQ(of(ledger.peak().at_peak, kParameters), 10);
  EXPECT_EQ(of(ledger.peak().at_peak, kActivations), 5);
  EXPECT_EQ(of(ledger.peak().max, kActivations), 13) << "when the parameters were gone";
}

TEST_F(Ledger, RelabelsWhatIsLeftOfAScope) {
  add(0, 1, MemoryCategory::other, 7);
  const auto from = ledger.next_serial();
  add(1, 2, MemoryCategory::other, 7);
  add(2, 4, MemoryCategory::other, 7);
  add(3, 8, MemoryCategory::other, 6);
  remove(1);
  ledger.relabel_scope(7, from, MemoryCategory::optimizer);
  EXPECT_EQ(of(ledger.bytes(), MemoryCategory::optimizer), 4);
  EXPECT_EQ(of(ledger.bytes(), MemoryCategory::other), 9);
}

TEST_F(Ledger, SamplesWhenAskedAndWhenMuchHasChanged) {
  add(0, 64 * kMiB, kParameters);
  add(1, kMiB / 2);
  EXPECT_EQ(ledger.timeline().samples.size(), 2u) << "of the jump, and the peak";
  ledger.sample(3);
  remove(0);
  const auto samples = ledger.timeline().samples;
  ASSERT_EQ(samples.size(), 4u);
  EXPECT_EQ(samples[0].step, -1);
  EXPECT_EQ(samples[2].step, 3);
  EXPECT_EQ(samples[3].seconds, 3);
  EXPECT_EQ(total_bytes(samples[3].bytes), kMiB / 2);
}

TEST_F(Ledger, KeepsPeaksWhenItThins) {
  add(0, 9 * kMiB, kParameters);
  for (int i = 0; i < 100; ++i) {
    add(1, i == 50 ? 100 * kMiB : kMiB);
    ledger.sample(i);
    remove(1);
    ledger.sample(i);
  }
  const auto timeline = ledger.timeline();
  EXPECT_LE(timeline.samples.size(), 9u) << "8, and the moment of the peak";
  EXPECT_EQ(timeline.peak_bytes, 109 * kMiB);
  std::int64_t max = 0;
  for (const auto& sample : timeline.samples) max = std::max(max, total_bytes(sample.bytes));
  EXPECT_TRUE(std::ranges::is_sorted(timeline.samples, {}, &MemorySample::seconds));
  EXPECT_EQ(max, timeline.peak_bytes);
  EXPECT_EQ(timeline.samples.back().step, 99);
}

TEST_F(Ledger, SamplesAreNeverFarApart) {
  MemoryLedger all(clock);
  all.add(blocks[0], 64 * kMiB, kParameters, 0);
  for (std::size_t i = 1; i < blocks.size(); ++i) all.add(blocks[i], kMiB, kActivations, 0);
  const auto samples = all.timeline().samples;
  ASSERT_GE(samples.size(), 20u);
  for (std::size_t i = 1; i < samples.size(); ++i) {
    EXPECT_LE(total_bytes(samples[i].bytes) - total_bytes(samples[i - 1].bytes), 3 * kMiB)
        << "1/64 of the peak, which is 127 MiB at last, and a block";
  }
}

}  // namespace
}  // namespace gradwire::test
