#include <numeric>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/base/error.h"
#include "gradwire/comm/communicator.h"
#include "gradwire/schedule/catalogue.h"
#include "tests/support/local_job.h"

/// Reduce, gather, scatter, all_to_all, receives from any rank, and operations that start together,
/// over real sockets.
namespace gradwire::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

LentSpan lend(std::vector<int>& values) {
  return {values.data(), values.size(), DataType::int32, nullptr};
}

/// A value that identifies the data of rank `from` for rank `to`.
int word(Rank from, Rank to, std::size_t i) {
  return from * 1'000'000 + to * 10'000 + static_cast<int>(i % 10'000);
}

class RootedCollectives : public testing::TestWithParam<std::size_t> {};

INSTANTIATE_TEST_SUITE_P(Counts, RootedCollectives, testing::Values(0, 1, 5, 1000, 70'001));

TEST_P(RootedCollectives, ReduceGivesTheRootTheSumAndLeavesTheOthersAlone) {
  LocalJob job(5);
  for (const std::string_view algorithm : schedule::algorithm_names(schedule::Collective::reduce)) {
    for (const Rank root : {0, 3}) {
      expect_no_errors(job.run([&](Rank rank, Communicator& c) {
        std::vector<int> data(GetParam(), rank + 1);
        c.reduce(lend(data), root, ReduceOp::sum, {.algorithm = std::string(algorithm)}).wait();
        EXPECT_EQ(data, std::vector<int>(GetParam(), rank == root ? 15 : rank + 1)) << algorithm;
      }));
    }
  }
}

TEST_P(RootedCollectives, GatherGivesTheRootAllParts) {
  LocalJob job(5);
  const std::size_t n = GetParam();
  for (const std::string_view algorithm : schedule::algorithm_names(schedule::Collective::gather)) {
    expect_no_errors(job.run([&](Rank rank, Communicator& c) {
      const Rank root = 2;
      std::vector<int> mine(n), all(rank == root ? 5 * n : 0);
      for (std::size_t i = 0; i < n; ++i) mine[i] = word(rank, root, i);
      c.gather(lend(mine), lend(all), root, {.algorithm = std::string(algorithm)}).wait();
      for (std::size_t i = 0; i < all.size(); ++i) {
        ASSERT_EQ(all[i], word(static_cast<Rank>(i / n), root, i % n)) << algorithm;
      }
    }));
  }
}

TEST_P(RootedCollectives, ScatterGivesEachItsPart) {
  LocalJob job(5);
  const std::size_t n = GetParam();
  for (const std::string_view algorithm :
       schedule::algorithm_names(schedule::Collective::scatter)) {
    expect_no_errors(job.run([&](Rank rank, Communicator& c) {
      const Rank root = 4;
      std::vector<int> all(rank == root ? 5 * n : 0), mine(n, -1);
      for (std::size_t i = 0; i < all.size(); ++i) {
        all[i] = word(root, static_cast<Rank>(i / n), i % n);
      }
      c.scatter(lend(all), lend(mine), root, {.algorithm = std::string(algorithm)}).wait();
      for (std::size_t i = 0; i < n; ++i) ASSERT_EQ(mine[i], word(root, rank, i)) << algorithm;
    }));
  }
}

TEST(AllToAll, EveryPartGoesToItsRank) {
  for (const int ranks : {1, 2, 3, 6}) {
    LocalJob job(ranks);
    for (const std::string_view algorithm :
         schedule::algorithm_names(schedule::Collective::all_to_all)) {
      expect_no_errors(job.run([&](Rank rank, Communicator& c) {
        const std::size_t n = 30'011;
        std::vector<int> in(n * static_cast<std::size_t>(ranks)), out(in.size());
        for (std::size_t i = 0; i < in.size(); ++i) {
          in[i] = word(rank, static_cast<Rank>(i / n), i % n);
        }
        c.all_to_all(lend(in), lend(out), {.algorithm = std::string(algorithm)}).wait();
        for (std::size_t i = 0; i < out.size(); ++i) {
          ASSERT_EQ(out[i], word(static_cast<Rank>(i / n), rank, i % n)) << algorithm;
        }
      }));
    }
  }
}

/// Number of elements from one rank to another: all different, some zero, some large.
std::size_t split(Rank from, Rank to) {
  return (from + to) % 3 == 0
             ? 0
             : static_cast<std::size_t>(from + 1) * 7919 + static_cast<std::size_t>(to) * 13;
}

std::vector<std::size_t> splits(int ranks, const std::function<std::size_t(Rank)>& count) {
  std::vector<std::size_t> counts;
  for (Rank r = 0; r < ranks; ++r) counts.push_back(count(r));
  return counts;
}

std::size_t sum(const std::vector<std::size_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::size_t{0});
}

void exchange_splits(LocalJob& job, const OperationOptions& options) {
  const int ranks = job.ranks();
  expect_no_errors(job.run([&](Rank rank, Communicator& c) {
    const auto to = splits(ranks, [&](Rank other) { return split(rank, other); });
    const auto from = splits(ranks, [&](Rank other) { return split(other, rank); });
    std::vector<int> in, out(sum(from), -1), expected;
    for (Rank r = 0; r < ranks; ++r) {
      for (std::size_t i = 0; i < split(rank, r); ++i) in.push_back(word(rank, r, i));
      for (std::size_t i = 0; i < split(r, rank); ++i) expected.push_back(word(r, rank, i));
    }
    for (int repeat = 0; repeat < 3; ++repeat) {
      c.all_to_all(lend(in), lend(out), to, from, options).wait();
      ASSERT_EQ(out, expected) << options.algorithm;
    }
  }));
}

TEST(AllToAll, PartsMayHaveAnySize) {
  for (const int ranks : {1, 2, 5}) {
    LocalJob job(ranks);
    exchange_splits(job, {});
    for (const std::string_view algorithm :
         schedule::algorithm_names(schedule::Collective::all_to_all))
      exchange_splits(job, {.algorithm = std::string(algorithm)});
  }
}

TEST(AllToAll, PartsOfDifferentSizeAtTheTwoEndsAreAnErrorOnEveryRank) {
  LocalJob job(3);
  const auto errors = job.run([&](Rank rank, Communicator& c) {
    std::vector<std::size_t> to(3, 10), from(3, 10);
    if (rank == 1) to = {10, 10, 11};  // Rank 2 expects 10.
    std::vector<int> in(sum(to)), out(sum(from));
    c.all_to_all(lend(in), lend(out), to, from).wait();
    c.barrier().wait();  // Rank 0, whose own splits are valid, may complete before it learns of the
                         // error.
  });
  for (const std::string& error : errors) EXPECT_THAT(error, HasSubstr("disagree"));
}

TEST(AllToAll, SplitsThatDoNotAddUpAreRefused) {
  LocalJob job(2);
  for (const std::string& error : job.run([&](Rank, Communicator& c) {
         std::vector<int> in(10), out(10);
         const std::vector<std::size_t> wrong{5, 6}, right{5, 5};
         c.all_to_all(lend(in), lend(out), wrong, right).wait();
       })) {
    EXPECT_THAT(error, AllOf(HasSubstr("add up to 11"), HasSubstr("10 elements")));
  }
}

TEST(Reduce, DifferentRootsAreAnErrorOnEveryRank) {
  LocalJob job(3);
  const auto errors = job.run([](Rank rank, Communicator& c) {
    std::vector<int> data(8);
    c.reduce(lend(data), rank == 1 ? 1 : 0, ReduceOp::sum).wait();
    c.barrier().wait();
  });
  for (const std::string& error : errors) EXPECT_THAT(error, HasSubstr("disagree"));
}

TEST(RecvAny, TakesEachMessageOnceAndSaysWhose) {
  LocalJob job(4);
  expect_no_errors(job.run([](Rank rank, Communicator& c) {
    for (const std::size_t count : {std::size_t{3}, std::size_t{200'000}}) {
      const int tag =
          static_cast<int>(count);  // Otherwise a fast sender's large message arrives too early.
      if (rank != 0) {
        std::vector<int> data(count, rank);
        c.send(lend(data), 0, tag).wait();
        c.send(lend(data), 0, tag).wait();
        continue;
      }
      std::vector<int> seen(4, 0);
      for (int i = 0; i < 6; ++i) {
        std::vector<int> data(count, -1);
        const Work work = c.recv_any(lend(data), tag);
        work.wait();
        ASSERT_GE(work.source(), 1);
        EXPECT_EQ(data, std::vector<int>(count, work.source()));
        ++seen[static_cast<std::size_t>(work.source())];
      }
      EXPECT_EQ(seen, (std::vector<int>{0, 2, 2, 2}));
    }
  }));
}

TEST(RecvAny, MayBePostedBeforeAnybodySends) {
  LocalJob job(3);
  expect_no_errors(job.run([](Rank rank, Communicator& c) {
    std::vector<int> first(1000), second(1000), data(1000, rank);
    if (rank == 0) {
      const Work a = c.recv_any(lend(first), 1);
      const Work b = c.recv_any(lend(second), 1);
      c.barrier().wait();
      a.wait(), b.wait();
      EXPECT_EQ(a.source() + b.source(), 3);
      EXPECT_EQ(first.front(), a.source());
      EXPECT_EQ(second.front(), b.source());
    } else {
      c.barrier().wait();
      c.send(lend(data), 0, 1).wait();
    }
  }));
}

TEST(RecvAny, LeavesOtherTagsAndNamedReceivesAlone) {
  LocalJob job(2);
  expect_no_errors(job.run([](Rank rank, Communicator& c) {
    std::vector<int> a(10, 1), b(10, 2), d(10, 3);
    if (rank == 1) {
      const Work one = c.send(lend(a), 0, 1);
      const Work two = c.send(lend(b), 0, 2);
      const Work three = c.send(lend(d), 0, 1);
      one.wait(), two.wait(), three.wait();
      return;
    }
    std::vector<int> in(10);
    c.recv_any(lend(in), 2).wait();
    EXPECT_EQ(in, b);
    c.recv(lend(in), 1, 1).wait();
    EXPECT_EQ(in, a);
    c.recv_any(lend(in), 1).wait();
    EXPECT_EQ(in, d);
  }));
}

TEST(RecvAny, FailsWhenASenderDies) {
  LocalJob job(2);
  const auto errors = job.run([&](Rank rank, Communicator& c) {
    std::vector<int> data(10);
    if (rank == 1) return c.abort("enough");
    c.recv_any(lend(data), 0).wait();
  });
  EXPECT_THAT(errors[0], HasSubstr("enough"));
}

TEST(Coalesced, ManyOperationsAreOneWork) {
  LocalJob job(3);
  expect_no_errors(job.run([](Rank rank, Communicator& c) {
    std::vector<std::vector<int>> data;
    for (std::size_t i = 0; i < 50; ++i) data.emplace_back(1 + i * 37, rank + 1);
    std::vector<int> part(7, rank), whole(21);
    const Work work = c.coalesced([&](Communicator& together) {
      for (auto& values : data) together.all_reduce(lend(values), ReduceOp::sum);
      together.all_gather(lend(part), lend(whole));
    });
    work.wait();
    for (const auto& values : data) ASSERT_EQ(values, std::vector<int>(values.size(), 6));
    for (std::size_t i = 0; i < 21; ++i) EXPECT_EQ(whole[i], static_cast<int>(i / 7));
  }));
}

TEST(Coalesced, NothingIsDoneAtOnceAndOneWithinAnotherStartsWithIt) {
  LocalJob job(2);
  expect_no_errors(job.run([](Rank, Communicator& c) {
    EXPECT_TRUE(c.coalesced([](Communicator&) {}).done());
    std::vector<int> a(3, 1), b(3, 2);
    c.coalesced([&](Communicator& outer) {
       outer.all_reduce(lend(a), ReduceOp::sum);
       outer.coalesced([&](Communicator& inner) { inner.all_reduce(lend(b), ReduceOp::sum); });
     }).wait();
    EXPECT_EQ(a.front() + b.front(), 6);
  }));
}

TEST(Coalesced, OneFailureIsTheFailureOfAll) {
  LocalJob job(2);
  for (const std::string& error : job.run([](Rank rank, Communicator&c) {
         std::vector<int> a(3), b(rank == 0 ? 3u : 4u);
         c.coalesced([&](Communicator& together) {
            together.all_reduce(lend(a), ReduceOp::sum);
            together.all_reduce(lend(b), ReduceOp::sum);
          }).wait();
       })) {
    EXPECT_THAT(error, HasSubstr("disagree"));
  }
}

}  // namespace
}  // namespace gradwire::test
