#include "gradwire/train/parallel/parallel_norm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/base/error.h"
#include "gradwire/train/parallel/rank_functions.h"
#include "tests/train/parallel/parallel_ranks.h"

namespace gradwire::test {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

torch::Tensor image(const Shape& shape, torch::ScalarType type = torch::kFloat64) {
  const auto count = whole_box(shape).elements();
  return (torch::sin(torch::arange(count, torch::kFloat64) * 0.7) * 3 + 100).view(shape).to(type);
}

template <class Plain, class Split>
void expect_same_norm(const ProcessGroup& group, Plain& plain, Split& split, std::size_t dimension,
                      const torch::Tensor& whole, double tolerance) {
  const Division division = divided(whole.sizes().vec(), dimension, group->getSize());
  const Box own = division.boxes[static_cast<std::size_t>(group->getRank())];
  auto x = view_of_box(whole, own).clone().requires_grad_();
  auto same = whole.clone().requires_grad_();
  const auto y = split(x);
  const auto expected = plain(same);
  expect_equal(y, view_of_box(expected, own), "output", tolerance);
  const auto dy = integers(whole.sizes().vec(), 1, whole.scalar_type());
  y.backward(view_of_box(dy, own));
  expected.backward(dy);
  expect_equal(x.grad(), view_of_box(same.grad(), own), "input's gradient", tolerance);
  expect_parts(*split, *plain, true, tolerance);
}

/// Weights and biases that differ by channel.
template <class Plain, class Split>
void use_float64(Plain& plain, Split& split) {
  plain->to(torch::kFloat64);
  split->to(torch::kFloat64);
  fill_with_integers(*plain);
  copy_parts(*split, *plain);
}

TEST(ParallelBatchNorm, HasTheStatisticsOfAllRanks) {
  for (const int ranks : {1, 2, 3, 4}) {
    on_parallel_ranks(ranks, [&](const ProcessGroup& group) {
      for (const std::size_t dimension : {0, 2, 3}) {
        for (const auto momentum : {std::optional<double>(0.1), std::optional<double>()}) {
          SCOPED_TRACE(testing::Message() << ranks << " ranks, dimension " << dimension);
          const auto options = torch::nn::BatchNormOptions(3).momentum(momentum);
          torch::nn::BatchNorm2d plain(options);
          ParallelBatchNorm split(options, group);
          use_float64(plain, split);
          for (int step = 0; step < 2; ++step) {
            plain->zero_grad();
            split->zero_grad();
            expect_same_norm(group, plain, split, dimension, image({3, 3, 5, 4}) * (step + 1),
                             1e-11);
          }
          expect_equal(split->running_mean, plain->running_mean, "running mean", 1e-13);
          expect_equal(split->running_var, plain->running_var, "running variance", 1e-12);
          expect_equal(split->num_batches_tracked, plain->num_batches_tracked, "batches");
          plain->eval();
          split->eval();
          const auto x = image({2, 3, 1, 2});
          expect_equal(split(x), plain(x), "evaluation", 1e-12);
        }
      }
    });
  }
}

TEST(ParallelBatchNorm, IsAccurateInFloat32AndTheSameOnEveryRank) {
  on_parallel_ranks(4, [](const ProcessGroup& group) {
    torch::nn::BatchNorm2d plain(torch::nn::BatchNormOptions(3).affine(false));
    ParallelBatchNorm split(torch::nn::BatchNormOptions(3).affine(false), group);
    const auto whole = image({8, 3, 5, 4}, torch::kFloat32);
    const auto y = split(collective::own_part(whole, 0, group));
    // Deviations of 3 about a mean of 100.
    expect_equal(y, collective::own_part(plain(whole), 0, group), "output", 1e-4);
    const auto all = collective::stack(split->running_var, group);
    for (int r = 1; r < 4; ++r) EXPECT_TRUE(torch::equal(all[0], all[r]));
  });
}

TEST(ParallelBatchNorm, CanLeaveGradientsToDataParallel) {
  on_parallel_ranks(2, [](const ProcessGroup& group) {
    ParallelBatchNorm split(torch::nn::BatchNormOptions(1), group, false);
    split(image({2, 1}) * (group->getRank() + 1)).sum().backward();
    EXPECT_EQ(split->bias.grad().item<float>(), 2);  // The own samples'.
  });
}

TEST(ParallelGroupNorm, HasTheStatisticsOfAllRanks) {
  for (const int ranks : {1, 2, 3, 4}) {
    on_parallel_ranks(ranks, [&](const ProcessGroup& group) {
      for (const std::size_t dimension : {2, 3}) {
        SCOPED_TRACE(testing::Message() << ranks << " ranks, dimension " << dimension);
        torch::nn::GroupNorm plain(torch::nn::GroupNormOptions(2, 4));
        ParallelGroupNorm split(torch::nn::GroupNormOptions(2, 4), group);
        use_float64(plain, split);
        expect_same_norm(group, plain, split, dimension, image({2, 4, 3, 5}), 1e-11);
      }
    });
  }
}

TEST(ParallelNorm, SendsThreeValuesAStatisticForwardAndTwoBackward) {
  on_parallel_ranks(
      2,
      [](const ProcessGroup& group) {
        ParallelBatchNorm split(torch::nn::BatchNormOptions(5), group);
        auto x = image({2, 5, 3}, torch::kFloat32).requires_grad_();
        torch::Tensor y;
        EXPECT_EQ(bytes_sent(group, [&] { y = split(x); }), 3u * 5 * 8);
        // And the gradients of weight and bias, all-reduced.
        EXPECT_EQ(bytes_sent(group, [&] { y.sum().backward(); }), 2u * 5 * 8 + 2 * 5 * 4);
      },
      "all_reduce=ring");
}

TEST(ParallelNorm, GradientsAreThoseOfDifferences) {
  on_parallel_ranks(2, [](const ProcessGroup& group) {
    ParallelGroupNorm split(torch::nn::GroupNormOptions(1, 2), group);
    split->to(torch::kFloat64);
    auto x = torch::sin(torch::arange(6, torch::kFloat64) * (group->getRank() + 1)).view({1, 2, 3});
    x.requires_grad_();
    const auto scale = torch::arange(6, torch::kFloat64).view({1, 2, 3});
    const auto function = [&] { return torch::tanh(split(x) * scale).sum(); };
    gradcheck(group, {x}, false, function);
    gradcheck(group, {split->weight, split->bias}, true, function);
  });
}

TEST(ParallelNorm, RefusesOtherChannels) {
  on_parallel_ranks(1, [](const ProcessGroup& group) {
    ParallelBatchNorm batch(torch::nn::BatchNormOptions(2), group);
    EXPECT_THAT(
        [&] {
          batch(torch::zeros({1, 3, 2}));
        },
        ThrowsMessage<Exception>(HasSubstr("2 channels, ...], found [1, 3, 2]")));
    EXPECT_THAT([&] { ParallelGroupNorm(torch::nn::GroupNormOptions(2, 3), group); },
                ThrowsMessage<Exception>(HasSubstr("3 channels cannot be divided into 2 groups")));
  });
}

}  // namespace
}  // namespace gradwire::test
