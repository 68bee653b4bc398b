#include "gradwire/servers/lock_free_updates.h"

#include <barrier>
#include <cmath>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/base/error.h"

/// Threads that update the same floats. ThreadSanitizer must find nothing here.
namespace gradwire::servers::test {
namespace {

using testing::Each;
using testing::ElementsAre;

using Floats = std::vector<float>;

/// Runs both at once.
template <class One, class Other>
void run_both(const One& one, const Other& other) {
  const std::jthread thread(one);
  other();
}

TEST(LockFreeUpdates, AddEachElementRoundedOnce) {
  Floats shared{1, 2, 3, 0.1f};
  const Floats values{0.3f, 0, -1, 0.7f};
  LockFreeUpdates updates({});
  updates.add(shared.data(), values.data(), values.size(), -0.1f);
  EXPECT_THAT(shared, ElementsAre(std::fma(-0.1f, 0.3f, 1.0f), 2, std::fma(-0.1f, -1.0f, 3.0f),
                                  std::fma(-0.1f, 0.7f, 0.1f)));
  EXPECT_EQ(updates.counts().written, 3);
}

TEST(LockFreeUpdates, AddRowsInOrder) {
  Floats shared(6, 1);
  const std::vector<std::int64_t> rows{2, 0, 2};
  const Floats values{1, 2, 3, 4, 5, 6};
  LockFreeUpdates updates({});
  updates.add_rows(shared.data(), 2, rows.data(), values.data(), rows.size(), 2);
  EXPECT_THAT(shared, ElementsAre(7, 9, 1, 1, 13, 17));
  EXPECT_EQ(updates.counts().written, 6);
}

TEST(LockFreeUpdates, AddSquares) {
  Floats shared{1, 2, 3, 4}, sums(4);
  const Floats values{0.1f, 0, 2, 3};
  add_squares(shared.data(), values.data(), sums.data(), 4);
  EXPECT_THAT(shared, ElementsAre(std::fma(0.1f, 0.1f, 1.0f), 2, 7, 13));
  EXPECT_EQ(sums, shared);
  const std::vector<std::int64_t> rows{1};
  const Floats squares{10, 20};
  sums.resize(2);
  add_squares_to_rows(shared.data(), 2, rows.data(), squares.data(), sums.data(), 1);
  EXPECT_THAT(sums, ElementsAre(17, 33));
  read_shared(shared.data() + 2, sums.data(), 2);
  EXPECT_THAT(sums, ElementsAre(17, 33));
}

/// The other thread's update falls between the load and the store.
TEST(LockFreeUpdates, SeeThatAnUpdateIsLost) {
  float shared = 1;
  std::barrier<> meeting(2);
  const float value = 1;
  LockFreeUpdates first({.sample_every = 1, .between = [&] {
                           meeting.arrive_and_wait();
                           meeting.arrive_and_wait();
                         }});
  LockFreeUpdates second({.sample_every = 1});
  run_both([&] { first.add(&shared, &value, 1, 10); },
           [&] {
             meeting.arrive_and_wait();
             second.add(&shared, &value, 1, 100);
             meeting.arrive_and_wait();
           });
  EXPECT_EQ(shared, 11);  // Without the 100 of the second.
  EXPECT_EQ(first.counts().lost, 1);
  EXPECT_EQ(first.counts().sampled, 1);
  EXPECT_EQ(second.counts().lost, 0);
}

/// The other thread's update is of another row.
TEST(LockFreeUpdates, SeeThatNoneIsLostInOtherRows) {
  Floats shared(4);
  std::barrier<> meeting(2);
  const Floats values{1, 1};
  const std::vector<std::int64_t> rows{0, 1};
  const auto wait = [&] { meeting.arrive_and_wait(); };
  LockFreeUpdates first({.sample_every = 1, .between = wait});
  LockFreeUpdates second({.sample_every = 1, .between = wait});
  run_both([&] { first.add_rows(shared.data(), 2, &rows[0], values.data(), 1, 1); },
           [&] { second.add_rows(shared.data(), 2, &rows[1], values.data(), 1, 1); });
  EXPECT_THAT(shared, Each(1));
  EXPECT_EQ(first.counts().lost + second.counts().lost, 0);
  EXPECT_EQ(first.counts().sampled + second.counts().sampled, 4);
}

/// Both load before either stores, in each of 1000 updates.
TEST(LockFreeUpdates, LoseAsManyAsTheyCount) {
  constexpr int kUpdates = 1000;
  float shared = 0;
  std::barrier<> meeting(2);
  const float value = 1;
  UpdateCounts counts;
  const auto wait = [&] { meeting.arrive_and_wait(); };
  LockFreeUpdates first({.sample_every = 1, .between = wait});
  LockFreeUpdates second({.sample_every = 1, .between = wait});
  const auto run = [&](LockFreeUpdates& updates) {
    for (int i = 0; i < kUpdates; ++i) {
      updates.add(&shared, &value, 1, 1);
      wait();
    }
  };
  run_both([&] { run(first); }, [&] { run(second); });
  counts += first.counts();
  counts += second.counts();
  EXPECT_EQ(counts.written, 2 * kUpdates);
  EXPECT_EQ(counts.lost, kUpdates);
  EXPECT_EQ(shared, static_cast<float>(counts.written - counts.lost));
}

TEST(LockFreeUpdates, KeepTheSumsOfElementsThatOneThreadHas) {
  constexpr std::size_t kElements = 10'000;
  constexpr int kPasses = 100;
  Floats shared(2 * kElements), squares(2 * kElements);
  const Floats values(kElements, 1);
  UpdateCounts counts;
  const auto run = [&](std::size_t begin, LockFreeUpdates& updates) {
    Floats sums(kElements);
    for (int i = 0; i < kPasses; ++i) {
      updates.add(shared.data() + begin, values.data(), kElements, 1);
      add_squares(squares.data() + begin, values.data(), sums.data(), kElements);
      read_shared(shared.data(), sums.data(), kElements);  // Also of the other one.
    }
  };
  LockFreeUpdates first({.sample_every = 64, .seed = 1}), second({.sample_every = 64, .seed = 2});
  run_both([&] { run(0, first); }, [&] { run(kElements, second); });
  EXPECT_THAT(shared, Each(kPasses));
  EXPECT_THAT(squares, Each(kPasses));
  counts += first.counts();
  counts += second.counts();
  EXPECT_EQ(counts.written, 2 * kElements * kPasses);
  EXPECT_EQ(counts.lost, 0);
  EXPECT_NEAR(static_cast<double>(counts.sampled), 2.0 * kElements * kPasses / 64, 700);
}

/// Whatever the lengths of the runs, one of `sample_every` elements is sampled, none of them zero.
TEST(LockFreeUpdates, SampleAtRandomDistances) {
  Floats shared(300, 0);
  Floats values(300, 1);
  values[7] = 0;
  LockFreeUpdates updates({.sample_every = 16});
  for (std::size_t i = 0; i < 3000; ++i) updates.add(shared.data(), values.data(), i % 301, 1);
  EXPECT_NEAR(
      static_cast<double>(updates.counts().written) / static_cast<double>(updates.counts().sampled),
      16, 0.3);
  EXPECT_EQ(shared[7], 0);
  EXPECT_THROW(LockFreeUpdates({.sample_every = 0}), Exception);
}

}  // namespace
}  // namespace gradwire::servers::test
