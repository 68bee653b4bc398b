#include "gradwire/checkpoint/piece_plan.h"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/base/error.h"
#include "gradwire/base/random.h"

namespace gradwire::test {
namespace {

using ::testing::HasSubstr;
using Load = std::vector<std::uint64_t>;

/// Expects every element to be written once, by a rank that holds it in one piece.
void expect_right(const std::vector<checkpoint::HeldPiece>& plan, std::int64_t elements,
                  const std::vector<checkpoint::HeldPiece>& held) {
  std::int64_t next = 0;
  for (const auto& piece : plan) {
    EXPECT_EQ(piece.begin, next);
    next += piece.count;
    EXPECT_TRUE(std::ranges::any_of(held, [&piece](const checkpoint::HeldPiece& has) {
      return has.rank == piece.rank && has.begin <= piece.begin &&
             piece.begin + piece.count <= has.begin + has.count;
    })) << piece.begin;
  }
  EXPECT_EQ(next, elements);
}

TEST(PiecePlan, DividesWhatAllRanksHaveEvenly) {
  Load load(4, 0);
  const std::vector<checkpoint::HeldPiece> held{
      {0, 0, 10001}, {1, 0, 10001}, {2, 0, 10001}, {3, 0, 10001}};
  expect_right(checkpoint::plan_pieces("x", 10001, 4, held, load), 10001, held);
  EXPECT_LE(*std::ranges::max_element(load), 2501u * 4);
}

TEST(PiecePlan, GivesSmallTensorsToTheLeastLoadedRank) {
  Load load{100000, 0, 50};
  const std::vector<checkpoint::HeldPiece> held{{0, 0, 10}, {1, 0, 10}, {2, 0, 10}};
  EXPECT_EQ(checkpoint::plan_pieces("x", 10, 4, held, load).at(0).rank, 1);
  EXPECT_EQ(checkpoint::plan_pieces("y", 10, 4, held, load).at(0).rank, 1);
  EXPECT_EQ(checkpoint::plan_pieces("z", 10, 4, held, load).at(0).rank, 2);
  EXPECT_EQ(load, (Load{100000, 80, 90}));
}

TEST(PiecePlan, LeavesShardsWhereTheyAre) {
  Load load(2, 0);
  const std::vector<checkpoint::HeldPiece> held{{1, 60000, 40000}, {0, 0, 60000}};
  const auto plan = checkpoint::plan_pieces("x", 100000, 4, held, load);
  expect_right(plan, 100000, held);
  EXPECT_EQ(load, (Load{240000, 160000}));
}

TEST(PiecePlan, IsRightForAnyOverlap) {
  Random random(3);
  for (int round = 0; round < 300; ++round) {
    const auto elements = random.between(0, 30000);
    const auto ranks = static_cast<int>(random.between(1, 6));
    const auto anybody = [&] { return static_cast<int>(random.between(0, ranks - 1)); };
    std::vector<checkpoint::HeldPiece> held;
    // Pieces of random ranks that cover all elements ...
    for (std::int64_t at = 0; at < elements;) {
      const auto count = std::min(elements - at, random.between(1, 9000));
      held.push_back({anybody(), at, count});
      at += count;
    }
    // ... and more that overlap, in random order.
    for (int more = 0; more < 5 && elements > 0; ++more) {
      const auto begin = random.between(0, elements - 1);
      const auto count = std::min(elements - begin, random.between(1, 9000));
      const auto place = static_cast<std::ptrdiff_t>(random.below(held.size() + 1));
      held.insert(held.begin() + place, {anybody(), begin, count});
    }
    Load load(static_cast<std::size_t>(ranks), 0);
    expect_right(checkpoint::plan_pieces("x", elements, 4, held, load), elements, held);
    if (::testing::Test::HasFailure()) return;
  }
}

TEST(PiecePlan, NothingIsWrittenOnce) {
  Load load(2, 0);
  EXPECT_EQ(checkpoint::plan_pieces("x", 0, 4, {{1, 0, 0}}, load).size(), 1u);
}

TEST(PiecePlan, RefusesGapsAndWhatIsBeyondTheEnd) {
  Load load(2, 0);
  const auto error_of = [&](const std::vector<checkpoint::HeldPiece>& held) -> std::string {
    try {
      checkpoint::plan_pieces("a.weight", 10, 4, held, load);
    } catch (const Exception& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_THAT(error_of({{0, 0, 4}, {1, 6, 4}}),
              HasSubstr("no rank holds elements 4 to 5 of 'a.weight'"));
  EXPECT_THAT(error_of({{0, 0, 4}, {1, 4, 7}}), HasSubstr("rank 1 holds elements 4 to 10"));
}

}  // namespace
}  // namespace gradwire::test
