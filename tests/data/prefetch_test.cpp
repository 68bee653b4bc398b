#include "gradwire/data/prefetch.h"

#include <atomic>
#include <semaphore>
#include <stdexcept>

#include <gtest/gtest.h>

namespace gradwire {
namespace {

std::function<std::optional<int>()> count_to(int end) {
  return [i = 0, end]() mutable { return i < end ? std::optional(i++) : std::nullopt; };
}

TEST(Prefetcher, GivesEverythingInOrderAndThenNothing) {
  for (const std::size_t capacity : {0u, 1u, 3u, 1000u}) {
    Prefetcher<int> prefetcher(count_to(100), capacity);
    for (int i = 0; i < 100; ++i) EXPECT_EQ(prefetcher.next(), i);
    EXPECT_EQ(prefetcher.next(), std::nullopt);
    EXPECT_EQ(prefetcher.next(), std::nullopt);
  }
}

TEST(Prefetcher, WorksAhead) {
  std::counting_semaphore<> made(0);
  Prefetcher<int> prefetcher(
      [&, i = 0]() mutable -> std::optional<int> {
        made.release();
        return i++;
      },
      3);
  for (int i = 0; i < 3; ++i) made.acquire();  // Without any request.
  EXPECT_EQ(prefetcher.next(), 0);
}

TEST(Prefetcher, NeverKeepsMoreThanItsCapacity) {
  std::atomic<int> made = 0;
  Prefetcher<int> prefetcher([&]() -> std::optional<int> { return ++made; }, 2);
  for (int taken = 1; taken <= 200; ++taken) {
    // Two are ready, and one more may be in preparation once there is room.
    EXPECT_LE(made.load(), taken + 2);
    prefetcher.next();
  }
}

TEST(Prefetcher, PassesExceptionsOnAfterWhatWasMadeBefore) {
  Prefetcher<int> prefetcher(
      [i = 0]() mutable -> std::optional<int> {
        if (i == 2) throw std::runtime_error("no more data");
        return i++;
      },
      8);
  EXPECT_EQ(prefetcher.next(), 0);
  EXPECT_EQ(prefetcher.next(), 1);
  EXPECT_THROW(prefetcher.next(), std::runtime_error);
  EXPECT_THROW(prefetcher.next(), std::runtime_error);
}

TEST(Prefetcher, StopsWhenItIsFullAndDestroyed) {
  std::atomic<int> made = 0;
  {
    Prefetcher<int> prefetcher([&]() -> std::optional<int> { return ++made; }, 2);
    prefetcher.next();
  }
  const int at_the_end = made.load();
  EXPECT_LE(at_the_end, 4);
}

}  // namespace
}  // namespace gradwire
