#include <algorithm>
#include <array>
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/base/error.h"
#include "tests/support/local_job.h"

namespace gradwire::test {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

using Group = std::shared_ptr<Communicator>;

/// Ranks of a grid with rows of `columns` ranks: those of this rank's row, and of its column.
std::vector<Rank> row_of(Rank rank, int columns) {
  std::vector<Rank> row(static_cast<std::size_t>(columns));
  std::iota(row.begin(), row.end(), rank / columns * columns);
  return row;
}

std::vector<Rank> column_of(Rank rank, int columns, int ranks) {
  std::vector<Rank> column;
  for (Rank r = rank % columns; r < ranks; r += columns) column.push_back(r);
  return column;
}

float sum(Communicator& c, float value, const OperationOptions& options = {}) {
  std::vector<float> data{value};
  c.all_reduce(lend(data), ReduceOp::sum, options).wait();
  return data.front();
}

TEST(Subgroup, EachRunsCollectivesOfItsOwn) {
  LocalJob job(6);
  expect_no_errors(job.run([](Rank rank, Communicator& c) {
    const Group row = c.subgroup(row_of(rank, 3));
    const Group column = c.subgroup(column_of(rank, 3, 6));
    ASSERT_EQ(row->size(), 3);
    ASSERT_EQ(row->rank(), rank % 3);
    ASSERT_EQ(column->size(), 2);
    ASSERT_EQ(column->rank(), rank / 3);
    const auto value = static_cast<float>(1 << rank);
    // The groups are at different operations of the same lane, in a different order per rank.
    std::vector<float> of_row{value}, of_column{value}, of_all{value};
    std::vector<Work> works;
    const auto start = [&](Communicator& group, std::vector<float>& data) {
      works.push_back(group.all_reduce(lend(data), ReduceOp::sum));
    };
    if (rank % 2 == 0) start(*row, of_row);
    start(c, of_all);
    start(*column, of_column);
    if (rank % 2 == 1) start(*row, of_row);
    for (const Work& work : works) work.wait();
    EXPECT_EQ(of_all.front(), 63);
    EXPECT_EQ(of_row.front(), rank < 3 ? 7 : 56);
    EXPECT_EQ(of_column.front(), static_cast<float>(9 << (rank % 3)));
  }));
}

TEST(Subgroup, RanksAreNumberedInTheGivenOrder) {
  LocalJob job(4);
  expect_no_errors(job.run([](Rank rank, Communicator& c) {
    if (rank == 2) return;
    const Group group = c.subgroup(std::array<Rank, 3>{3, 0, 1});
    std::vector<float> mine{static_cast<float>(rank)}, all(3);
    group->all_gather(lend(mine), lend(all)).wait();
    EXPECT_THAT(all, ElementsAre(3, 0, 1));
    std::vector<float> data{static_cast<float>(rank)};
    group->broadcast(lend(data), 0).wait();
    EXPECT_EQ(data.front(), 3);
  }));
}

TEST(Subgroup, UnequalPartsGoToItsRanks) {
  LocalJob job(4);
  expect_no_errors(job.run([](Rank rank, Communicator& c) {
    if (rank == 0) return;
    const Group group = c.subgroup(std::array<Rank, 3>{3, 1, 2});
    // Rank a of the group sends a + b + 1 elements of value 10 a + b to rank b.
    const int a = group->rank();
    std::vector<std::size_t> counts;
    std::vector<float> input, expected;
    for (int b = 0; b < 3; ++b) {
      counts.push_back(static_cast<std::size_t>(a + b + 1));
      input.insert(input.end(), counts.back(), static_cast<float>(10 * a + b));
      expected.insert(expected.end(), counts.back(), static_cast<float>(10 * b + a));
    }
    std::vector<float> output(input.size());
    group->all_to_all(lend(input), lend(output), counts, counts).wait();
    EXPECT_EQ(output, expected);
  }));
}

TEST(Subgroup, MessagesWithTheSameTagDoNotMeet) {
  LocalJob job(3);
  expect_no_errors(job.run([](Rank rank, Communicator& c) {
    if (rank == 2) return;
    const std::array<Rank, 2> pair{1, 0};
    const Group first = c.subgroup(pair), second = c.subgroup(pair);
    const std::array<Communicator*, 3> groups{&c, first.get(), second.get()};
    std::array<std::vector<float>, 3> data;
    std::vector<Work> works(3);
    for (std::size_t i = 0; i < 3; ++i) {
      const std::size_t g = rank == 0 ? (i + 2) % 3 : i;  // The order differs.
      data[g].assign(10'000, rank == 0 ? static_cast<float>(g) : -1);
      const Rank other = 1 - groups[g]->rank();
      works[g] = rank == 0 ? groups[g]->send(lend(data[g]), other, 5)
                 : g == 1  ? groups[g]->recv_any(lend(data[g]), 5)
                           : groups[g]->recv(lend(data[g]), other, 5);
    }
    for (const Work& work : works) work.wait();
    for (std::size_t g = 0; g < 3; ++g) EXPECT_THAT(data[g], Each(static_cast<float>(g)));
    EXPECT_EQ(works[1].source(), rank == 1 ? 1 : -1) << "the sender's rank in the group";
  }));
}

TEST(Subgroup, HasSubgroupsOfItsOwn) {
  LocalJob job(8);
  expect_no_errors(job.run([](Rank rank, Communicator& c) {
    // Ranks make different numbers of groups before they meet in one.
    std::vector<Group> groups;
    for (int i = 0; i <= rank % 2; ++i) groups.push_back(c.subgroup(std::array<Rank, 1>{rank}));
    const Group half = c.subgroup(row_of(rank, 4));
    const Group quarter = half->subgroup(row_of(half->rank(), 2));
    const Group all = c.subgroup(column_of(0, 1, 8));
    const auto value = static_cast<float>(rank);
    for (const Group& alone : groups) EXPECT_EQ(sum(*alone, value), value);
    const auto first = static_cast<float>(rank / 2 * 2);
    EXPECT_EQ(sum(*quarter, value), 2 * first + 1);
    EXPECT_EQ(sum(*half, value), rank < 4 ? 6 : 22);
    EXPECT_EQ(sum(*all, value), 28);
  }));
}

TEST(Subgroup, OutlivesTheCommunicatorThatMadeIt) {
  std::vector<Group> groups(3);
  LocalJob job(3);
  expect_no_errors(job.run([&](Rank rank, Communicator& c) {
    groups[static_cast<std::size_t>(rank)] = c.subgroup(std::array<Rank, 3>{0, 1, 2});
  }));
  std::vector<std::thread> threads;
  std::array<float, 3> sums{};
  for (Rank rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      const auto r = static_cast<std::size_t>(rank);
      job.leave(rank);
      sums[r] = sum(*groups[r], static_cast<float>(rank));
      groups[r].reset();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(sums, Each(3));
}

TEST(Subgroup, ItsErrorEndsTheCommunicatorEverywhere) {
  LocalJob job(3);
  const auto errors = job.run([](Rank rank, Communicator& c) {
    if (rank < 2) {
      const Group pair = c.subgroup(std::array<Rank, 2>{0, 1});
      std::vector<float> data(rank == 0 ? 10 : 11);
      try {
        pair->all_reduce(lend(data), ReduceOp::sum).wait();
        ADD_FAILURE() << "different sizes";
      } catch (const Exception& e) {
        EXPECT_THAT(e.what(), HasSubstr("of subgroup 1"));
      }
    }
    sum(c, 1);
  });
  for (const std::string& error : errors) EXPECT_NE(error, "");
}

TEST(Subgroup, WrongRanksAreRefusedBeforeAnythingIsSent) {
  LocalJob job(2);
  expect_no_errors(job.run([](Rank rank, Communicator& c) {
    const auto refusal = [&](std::vector<Rank> ranks) -> std::string {
      try {
        c.subgroup(ranks);
      } catch (const Exception& e) {
        return e.what();
      }
      return "";
    };
    EXPECT_THAT(refusal({0, 2}), HasSubstr("ranks are 0 to 1"));
    EXPECT_THAT(refusal({0, 1, 0}), HasSubstr("rank 0 is twice in a subgroup"));
    EXPECT_THAT(refusal({1 - rank}), HasSubstr("is not in the subgroup that it makes"));
    EXPECT_EQ(sum(c, 1), 2);
  }));
}

TEST(Subgroup, HasTheLinksOfItsRanks) {
  std::vector<topology::Host> hosts(3);
  for (std::size_t i = 0; i < 3; ++i) {
    hosts[i].name = std::string(1, static_cast<char>('a' + i));
  }
  topology::Topology all(hosts, {0, 0, 1, 2});
  const topology::Link slow{.latency = std::chrono::microseconds(70), .bytes_per_second = 1e7};
  all.set_measured(2, 0, slow);
  const topology::Topology some = all.restricted_to(std::array<Rank, 3>{3, 1, 0});
  ASSERT_EQ(some.ranks(), 3);
  ASSERT_EQ(some.hosts(), 2);
  EXPECT_EQ(some.host(0).name, "c");
  EXPECT_TRUE(some.same_host(1, 2));
  EXPECT_EQ(some.path(0, 1), slow);
  EXPECT_EQ(some.path(1, 0), all.path(1, 3));
}

}  // namespace
}  // namespace gradwire::test
