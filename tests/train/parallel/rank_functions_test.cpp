#include "gradwire/train/parallel/rank_functions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/base/error.h"
#include "gradwire/base/random.h"
#include "tests/train/parallel/parallel_ranks.h"

namespace gradwire::test {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

/// Sums over ranks, of a value that differs between them.
double over_ranks(const ProcessGroup& group, double value) {
  return sum_over_ranks(*group, {value})[0];
}

struct Spaces {
  bool replicated_input;
  bool replicated_output;
};

/// <A x, y> == <x, A' y>. A replicated tensor counts once.
void expect_adjoint(const ProcessGroup& group, const Spaces& spaces, torch::Tensor x,
                    const TensorMap& map) {
  const int own = group->getRank() + 1;
  if (!spaces.replicated_input) x = x * own;
  x.requires_grad_();
  const auto ax = map(x);
  auto y = integers(ax.sizes().vec(), 5);
  if (!spaces.replicated_output) y = y + own;
  ax.backward(y);
  const double left = inner_product(ax.detach(), y);
  const double right = inner_product(x.detach(), x.grad());
  EXPECT_EQ(spaces.replicated_output ? left : over_ranks(group, left),
            spaces.replicated_input ? right : over_ranks(group, right));
}

TEST(RankFunctions, BackwardIsTheAdjoint) {
  for (const int ranks : {1, 2, 3, 4}) {
    on_parallel_ranks(ranks, [&](const ProcessGroup& group) {
      for (const std::int64_t size : {2, 7, 12}) {
        SCOPED_TRACE(testing::Message() << ranks << " ranks, size " << size);
        const auto whole = integers({2, size, 3});
        const auto part = collective::own_part(whole, 1, group).clone();
        expect_adjoint(group, {true, false}, whole.clone(),
                       [&](const auto& x) { return copy_to_ranks(x, group); });
        expect_adjoint(group, {false, true}, whole.clone(),
                       [&](const auto& x) { return sum_over_ranks(x, group); });
        expect_adjoint(group, {false, true}, part.clone(),
                       [&](const auto& x) { return gather_over_ranks(x, 1, size, group); });
        expect_adjoint(group, {true, false}, whole.clone(),
                       [&](const auto& x) { return scatter_over_ranks(x, 1, group); });
        expect_adjoint(group, {false, false}, part.clone(),
                       [&](const auto& x) { return gather_to_ranks(x, 1, size, group); });
        expect_adjoint(group, {false, false}, whole.clone(),
                       [&](const auto& x) { return reduce_scatter_over_ranks(x, 1, group); });
      }
    });
  }
}

TEST(RankFunctions, HaveTheValuesTheyPromise) {
  on_parallel_ranks(3, [](const ProcessGroup& group) {
    for (const std::int64_t size : {6, 7}) {
      const auto whole = integers({2, size});
      const auto part = scatter_over_ranks(whole, 1, group);
      const auto begin = part_begin(size, 3, group->getRank());
      expect_equal(part, whole.narrow(1, begin, part.size(1)), "scatter");
      expect_equal(gather_over_ranks(part, 1, size, group), whole, "gather");
      expect_equal(gather_to_ranks(part, 1, size, group), whole, "gather to");
      const auto mine = whole * (group->getRank() + 1);
      expect_equal(sum_over_ranks(mine, group), whole * 6, "sum");
      expect_equal(reduce_scatter_over_ranks(mine, 1, group), part * 6, "reduce-scatter");
      expect_equal(collective::stack(mine, group), torch::stack({whole, whole * 2, whole * 3}),
                   "stack");
    }
  });
}

/// A random partition: strips of random extent, of a random dimension.
Division random_partition(Random& random, const Shape& shape, int ranks) {
  const auto d = static_cast<std::size_t>(random.below(shape.size()));
  std::vector<std::int64_t> cuts{0, shape[d]};
  for (int i = 1; i < ranks; ++i) cuts.push_back(random.between(0, shape[d]));
  std::ranges::sort(cuts);
  Division division{shape, {}};
  for (std::size_t r = 0; r + 1 < cuts.size(); ++r) {
    Box box = whole_box(shape);
    box.begin[d] = cuts[r];
    box.end[d] = cuts[r + 1];
    division.boxes.push_back(box);
  }
  return division;
}

Division random_boxes(Random& random, const Shape& shape, int ranks) {
  Division division{shape, {}};
  for (int r = 0; r < ranks; ++r) {
    Box box;
    for (const auto size : shape) {
      const auto a = random.between(0, size);
      const auto b = random.between(0, size);
      box.begin.push_back(std::min(a, b));
      box.end.push_back(std::max(a, b));
    }
    division.boxes.push_back(box);
  }
  return division;
}

TEST(BoxExchange, DeliversBoxesAndAddsGradients) {
  for (const int ranks : {1, 2, 3, 4}) {
    on_parallel_ranks(ranks, [&](const ProcessGroup& group) {
      const auto own = static_cast<std::size_t>(group->getRank());
      for (std::uint64_t seed = 0; seed < 60; ++seed) {
        SCOPED_TRACE(testing::Message() << ranks << " ranks, seed " << seed);
        Random random(seed);
        const Shape shape{random.between(1, 4), random.between(0, 6), random.between(1, 5)};
        const Division from = random_partition(random, shape, ranks);
        const Division to =
            random.one_in(4) ? replicated(shape, ranks) : random_boxes(random, shape, ranks);
        const BoxExchange exchange(from, to, group);
        const auto whole = integers(shape);
        auto x = view_of_box(whole, from.boxes[own]).clone().requires_grad_();
        std::size_t sent = 0;
        torch::Tensor y;
        sent = bytes_sent(group, [&] { y = exchange(x); });
        expect_equal(y, view_of_box(whole, to.boxes[own]), "forward");
        if (to != replicated(shape, ranks)) {
          EXPECT_EQ(sent, static_cast<std::size_t>(exchange.elements_sent()) * 4);
        }
        const auto weights = integers(shape, 3);
        y.backward(view_of_box(weights, to.boxes[own]) * static_cast<int>(own + 1));
        auto expected = torch::zeros(shape);
        for (int r = 0; r < ranks; ++r) {
          const Box& box = to.boxes[static_cast<std::size_t>(r)];
          view_of_box(expected, box).add_(view_of_box(weights, box) * (r + 1));
        }
        expect_equal(x.grad(), view_of_box(expected, from.boxes[own]), "backward");
      }
    });
  }
}

TEST(BoxExchange, DividesAndGathersReplicatedTensors) {
  on_parallel_ranks(3, [](const ProcessGroup& group) {
    const auto own = static_cast<std::size_t>(group->getRank());
    const Division strips = divided({2, 7}, 1, 3);
    auto whole = integers({2, 7}).requires_grad_();
    const auto x = divide(whole, strips, group);
    const auto samples = redivide(x, divided({2, 7}, 0, 3), group);
    expect_equal(samples.own, view_of_box(whole, samples.division.boxes[own]), "samples");
    const auto again = undivide(samples, group);
    expect_equal(again, whole.detach(), "whole");
    again.backward(integers({2, 7}, 4));
    expect_equal(whole.grad(), integers({2, 7}, 4), "gradient");
  });
}

TEST(BoxExchange, RefusesATensorThatIsNotItsBox) {
  on_parallel_ranks(2, [](const ProcessGroup& group) {
    const BoxExchange exchange(divided({4}, 0, 2), replicated({4}, 2), group);
    EXPECT_THAT([&] { exchange(torch::zeros({3})); },
                ThrowsMessage<Exception>(HasSubstr("of shape [2], but passes a tensor of [3]")));
    EXPECT_THAT([&] { BoxExchange(divided({4}, 0, 3), replicated({4}, 2), group); },
                ThrowsMessage<Exception>(HasSubstr("in a group of 2")));
    EXPECT_THAT([&] { divide(torch::zeros({4}), replicated({4}, 2), group); },
                ThrowsMessage<Exception>(HasSubstr("disjoint")));
  });
}

}  // namespace
}  // namespace gradwire::test
