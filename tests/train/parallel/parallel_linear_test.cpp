#include "gradwire/train/parallel/parallel_linear.h"

#include <utility>

#include <ATen/autocast_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/base/error.h"
#include "gradwire/train/parallel/parallel_cross_entropy.h"
#include "gradwire/train/parallel/parallel_embedding.h"
#include "gradwire/train/parallel/rank_functions.h"
#include "gradwire/train/parallel/sequence_parallel.h"
#include "gradwire/train/pipeline/split_backward.h"
#include "tests/train/parallel/parallel_ranks.h"

namespace gradwire::test {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

/// Up, activation, down: the same names split and unsplit.
struct PlainMlp : torch::nn::Module {
  PlainMlp(std::int64_t width, std::int64_t inner)
      : up(register_module("up", torch::nn::Linear(width, inner))),
        down(register_module("down", torch::nn::Linear(inner, width))) {}
  torch::Tensor forward(const torch::Tensor& x) { return down(torch::relu(up(x))); }
  torch::nn::Linear up;
  torch::nn::Linear down;
};

struct SplitMlp : torch::nn::Module {
  SplitMlp(std::int64_t width, std::int64_t inner, const ProcessGroup& group,
           std::optional<std::int64_t> sequence = std::nullopt)
      : up(register_module(
            "up",
            ColumnParallelLinear(
                ColumnParallelLinearOptions(width, inner).sequence_dimension(sequence), group))),
        down(register_module(
            "down",
            RowParallelLinear(RowParallelLinearOptions(inner, width).sequence_dimension(sequence),
                              group))) {}
  torch::Tensor forward(const torch::Tensor& x) { return down(torch::relu(up(x))); }
  ColumnParallelLinear up;
  RowParallelLinear down;
};

TEST(ParallelLinear, HasTheValuesGradientsAndInitialWeightsOfLinear) {
  for (const int ranks : {1, 2, 3, 4}) {
    on_parallel_ranks(ranks, [&](const ProcessGroup& group) {
      for (const std::int64_t inner : {3, 8, 10}) {
        SCOPED_TRACE(testing::Message() << ranks << " ranks, " << inner << " features");
        PlainMlp plain = drawn_alike(1, [&] { return PlainMlp(5, inner); });
        SplitMlp split = drawn_alike(1, [&] { return SplitMlp(5, inner, group); });
        expect_parts(split, plain, false);
        fill_with_integers(plain);
        copy_parts(split, plain);
        auto x = integers({2, 3, 5}).requires_grad_();
        auto same = x.detach().clone().requires_grad_();
        const auto y = split.forward(x);
        const auto expected = plain.forward(same);
        expect_equal(y, expected, "output");
        const auto dy = integers({2, 3, 5}, 2);
        y.backward(dy);
        expected.backward(dy);
        expect_equal(x.grad(), same.grad(), "input's gradient");
        expect_parts(split, plain, true);
      }
    });
  }
}

TEST(ParallelLinear, GathersOutputsAndScattersInputs) {
  on_parallel_ranks(3, [](const ProcessGroup& group) {
    torch::nn::Linear plain_up(4, 7);
    torch::nn::Linear plain_down(torch::nn::LinearOptions(7, 2).bias(false));
    ColumnParallelLinear up(ColumnParallelLinearOptions(4, 7).gather_output(true), group);
    RowParallelLinear down(RowParallelLinearOptions(7, 2).bias(false).input_is_parallel(false),
                           group);
    fill_with_integers(*plain_up);
    fill_with_integers(*plain_down);
    copy_parts(*up, *plain_up);
    copy_parts(*down, *plain_down);
    auto x = integers({3, 4}).requires_grad_();
    auto same = x.detach().clone().requires_grad_();
    const auto y = down(up(x));
    const auto expected = plain_down->weight.matmul(plain_up->forward(same).t()).t();
    expect_equal(y, expected, "output");
    y.backward(integers({3, 2}, 1));
    expected.backward(integers({3, 2}, 1));
    expect_equal(x.grad(), same.grad(), "input's gradient");
    expect_parts(*up, *plain_up, true);
    expect_parts(*down, *plain_down, true);
  });
}

TEST(ParallelLinear, SendsTwoAllReducesABlock) {
  for (const int ranks : {2, 4}) {
    on_parallel_ranks(
        ranks,
        [&](const ProcessGroup& group) {
          constexpr std::size_t kTokens = 8;
          constexpr std::size_t kWidth = 12;
          SplitMlp split(kWidth, 16, group);
          SplitMlp by_tokens(kWidth, 16, group, 0);
          // 2 (t-1)/t x tokens x width x bytes a rank, forward and again backward.
          const auto all_reduce =
              2 * static_cast<std::size_t>(ranks - 1) * kTokens * kWidth * 4 / ranks;
          const auto total = [&](std::size_t bytes) {
            return static_cast<std::size_t>(sum_over_ranks(*group, {double(bytes)})[0]);
          };
          auto x = integers({kTokens, kWidth}).requires_grad_();
          torch::Tensor y;
          const auto forward = bytes_sent(group, [&] { y = split.forward(x); });
          EXPECT_EQ(total(forward), all_reduce * ranks);
          const auto backward = bytes_sent(group, [&] { y.sum().backward(); });
          EXPECT_EQ(total(backward), all_reduce * ranks);

          auto part = scatter_over_ranks(x.detach(), 0, group).clone().requires_grad_();
          const auto gathered = bytes_sent(group, [&] { y = by_tokens.forward(part); });
          EXPECT_EQ(total(gathered), all_reduce * ranks);
          // And the gradient of the bias, which is replicated: one all-reduce of `width` elements.
          const auto bias = 2 * static_cast<std::size_t>(ranks - 1) * kWidth * 4;
          const auto scattered = bytes_sent(group, [&] { y.sum().backward(); });
          EXPECT_EQ(total(scattered), all_reduce * ranks + bias);
        },
        "all_reduce=ring");
  }
}

TEST(ParallelLinear, ComputesInTheTypeOfAutocast) {
  on_parallel_ranks(2, [](const ProcessGroup& group) {
    SplitMlp split(4, 6, group);
    auto x = integers({3, 4}).requires_grad_();
    at::autocast::set_autocast_enabled(at::kCPU, true);
    const auto y = split.forward(x);
    at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(at::kCPU, false);
    EXPECT_EQ(y.scalar_type(), torch::kBFloat16);
    y.sum().backward();
    EXPECT_EQ(x.grad().scalar_type(), torch::kFloat32);
    EXPECT_EQ(split.up->weight.grad().scalar_type(), torch::kFloat32);
    EXPECT_EQ(split.up->bias.grad().scalar_type(), torch::kFloat32);
  });
}

TEST(DropoutOfPart, HasTheMaskOfTheUnsplitModel) {
  on_parallel_ranks(3, [](const ProcessGroup& group) {
    const auto whole = integers({2, 7, 3}) + 5;
    using Drawn = std::pair<torch::Tensor, float>;  // And the number that is drawn next.
    const auto part = collective::own_part(whole, 1, group);
    const auto [expected, after] = drawn_alike(9, [&] {
      const auto dropped = torch::dropout(whole, 0.4, true);
      return Drawn(dropped, torch::randn({1}).item<float>());
    });
    const auto [own, after_own] = drawn_alike(9, [&] {
      const auto dropped = dropout_of_part(part, 0.4, true, 1, 7, group);
      return Drawn(dropped, torch::randn({1}).item<float>());
    });
    expect_equal(own, collective::own_part(expected, 1, group), "dropout");
    EXPECT_EQ(after, after_own);
    expect_equal(dropout_of_part(part, 0.4, false, 1, 7, group), part, "evaluation");
  });
}

TEST(ParallelLinear, ComputesOnlyTheGradientsAskedFor) {
  on_parallel_ranks(2, [](const ProcessGroup& group) {
    ColumnParallelLinear layer(4, 6, group);
    auto x = integers({3, 4}).requires_grad_();
    const auto y = layer(x);
    const auto all = torch::autograd::grad({y.sum()}, {x, layer->weight}, {}, true);
    const auto only_input = bytes_sent(group, [&] {
      expect_equal(torch::autograd::grad({y.sum()}, {x}, {}, true)[0], all[0], "input");
    });
    EXPECT_GT(only_input, 0u);
    const auto only_weight = bytes_sent(group, [&] {
      expect_equal(torch::autograd::grad({y.sum()}, {layer->weight})[0], all[1], "weight");
    });
    EXPECT_EQ(only_weight, 0u);
  });
}

/// A sequence-parallel part: norm, then the block; each rank has a part of the tokens.
struct SequenceBlock : torch::nn::Module {
  explicit SequenceBlock(const ProcessGroup& group)
      : norm(register_module("norm",
                             SequenceParallelLayerNorm(torch::nn::LayerNormOptions({4}), group))),
        mlp(register_module("mlp", std::make_shared<SplitMlp>(4, 6, group, 1))) {}
  torch::Tensor forward(const torch::Tensor& x) { return x + mlp->forward(norm(x)); }
  SequenceParallelLayerNorm norm;
  std::shared_ptr<SplitMlp> mlp;
};

struct PlainBlock : torch::nn::Module {
  PlainBlock()
      : norm(register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({4})))),
        mlp(register_module("mlp", std::make_shared<PlainMlp>(4, 6))) {}
  torch::Tensor forward(const torch::Tensor& x) { return x + mlp->forward(norm(x)); }
  torch::nn::LayerNorm norm;
  std::shared_ptr<PlainMlp> mlp;
};

TEST(SequenceParallel, HasTheValuesAndGradientsOfTheUnsplitModel) {
  for (const int ranks : {1, 2, 3}) {
    on_parallel_ranks(ranks, [&](const ProcessGroup& group) {
      PlainBlock plain = drawn_alike(3, [] { return PlainBlock(); });
      SequenceBlock split = drawn_alike(3, [&] { return SequenceBlock(group); });
      plain.to(torch::kFloat64);
      split.to(torch::kFloat64);
      expect_parts(split, plain, false);
      auto whole = torch::sin(torch::arange(2 * 6 * 4, torch::kFloat64)).view({2, 6, 4});
      auto same = whole.clone().requires_grad_();
      whole.requires_grad_();
      const auto x = scatter_over_ranks(whole, 1, group);
      const auto y = gather_over_ranks(split.forward(x), 1, 6, group);
      const auto expected = plain.forward(same);
      expect_equal(y, expected, "output", 1e-13);
      const auto dy = integers({2, 6, 4}, 1, torch::kFloat64);
      y.backward(dy);
      expected.backward(dy);
      expect_equal(whole.grad(), same.grad(), "input's gradient", 1e-12);
      expect_parts(split, plain, true, 1e-12);
    });
  }
}

TEST(SequenceParallel, RefusesTokensThatDoNotDivide) {
  on_parallel_ranks(2, [](const ProcessGroup& group) {
    RowParallelLinear layer(RowParallelLinearOptions(2, 4).sequence_dimension(0), group);
    EXPECT_THAT(
        [&] {
          layer(torch::zeros({3, 1}));
        },
        ThrowsMessage<Exception>(HasSubstr("RowParallelLinear: 3 tokens in dimension 0")));
    EXPECT_THAT([&] { equal_part("attention heads", 3, group); },
                ThrowsMessage<Exception>(HasSubstr("3 attention heads cannot be divided equally")));
  });
}

TEST(ParallelEmbedding, HasTheValuesAndGradientsOfEmbedding) {
  for (const int ranks : {1, 2, 3, 4}) {
    on_parallel_ranks(ranks, [&](const ProcessGroup& group) {
      for (const std::int64_t rows : {3, 8, 11}) {
        auto plain = drawn_alike(2, [&] { return torch::nn::Embedding(rows, 3); });
        auto split = drawn_alike(2, [&] { return ParallelEmbedding(rows, 3, group); });
        expect_parts(*split, *plain, false);
        const auto indices = torch::arange(2 * rows).remainder(rows).view({rows, 2});
        const auto y = split(indices);
        const auto expected = plain(indices);
        expect_equal(y, expected, "output");
        y.backward(integers({rows, 2, 3}));
        expected.backward(integers({rows, 2, 3}));
        expect_parts(*split, *plain, true);
        if (ranks == 1) continue;
        EXPECT_THAT([&] { split(indices + 1); },
                    ThrowsMessage<Exception>(HasSubstr("asked for the rows 1 to")));
      }
    });
  }
}

TEST(TableParallelEmbedding, HasTheValuesAndGradientsOfTables) {
  const std::vector<std::int64_t> rows{5, 3, 7};
  for (const int ranks : {1, 2, 3, 4}) {
    on_parallel_ranks(ranks, [&](const ProcessGroup& group) {
      SCOPED_TRACE(ranks);
      auto plain = drawn_alike(4, [&] {
        torch::nn::ModuleList tables;
        for (const auto count : rows) tables->push_back(torch::nn::Embedding(count, 2));
        return tables;
      });
      auto split = drawn_alike(4, [&] { return TableParallelEmbedding(rows, 2, group); });
      expect_parts(*split, *plain, false);
      plain->to(torch::kFloat64);
      split->to(torch::kFloat64);
      const auto indices = torch::arange(7 * 3).view({7, 3}).remainder(3);
      const auto y = split(divide(indices, divided({7, 3}, 0, ranks), group));
      std::vector<torch::Tensor> columns;
      for (std::size_t t = 0; t < rows.size(); ++t) {
        columns.push_back(plain[t]->as<torch::nn::Embedding>()->forward(
            indices.select(1, static_cast<std::int64_t>(t))));
      }
      const auto expected = torch::stack(columns, 1);
      const Box own = y.division.boxes[static_cast<std::size_t>(group->getRank())];
      expect_equal(y.own, view_of_box(expected, own), "output");
      const auto dy = integers({7, 3, 2}, 1, torch::kFloat64);
      y.own.backward(view_of_box(dy, own));
      expected.backward(dy);
      expect_parts(*split, *plain, true);
    });
  }
}

TEST(CrossEntropyOverRanks, IsThatOfTheWholeLogits) {
  for (const int ranks : {1, 2, 3, 4}) {
    on_parallel_ranks(ranks, [&](const ProcessGroup& group) {
      for (const std::int64_t classes : {3, 7, 12}) {
        SCOPED_TRACE(testing::Message() << ranks << " ranks, " << classes << " classes");
        const auto values = torch::sin(torch::arange(2 * 5 * classes, torch::kFloat64)) * 30;
        const auto whole = values.view({2, 5, classes}).clone().requires_grad_();
        auto part = collective::own_part(whole.detach(), 2, group).clone().requires_grad_();
        auto target = torch::arange(10).remainder(classes).view({2, 5});
        target[1][2] = -100;
        const PipelineLoss loss = cross_entropy_sum_over_ranks(classes, group);
        const PipelineLoss plain = cross_entropy_sum();
        EXPECT_EQ(loss.count(target), 9);
        const auto y = loss.sum(part, target);
        const auto expected = plain.sum(whole, target);
        expect_equal(y, expected, "loss", 1e-13);
        (y / 9).backward();
        (expected / 9).backward();
        expect_equal(part.grad(), collective::own_part(whole.grad(), 2, group), "gradient", 1e-13);
      }
    });
  }
}

TEST(CrossEntropyOverRanks, SendsThreeValuesAToken) {
  constexpr std::size_t kTokens = 16;
  on_parallel_ranks(
      4,
      [](const ProcessGroup& group) {
        const auto logits = integers({kTokens, 25}).requires_grad_();
        const auto target = torch::arange(static_cast<std::int64_t>(kTokens));
        torch::Tensor loss;
        const auto sent =
            bytes_sent(group, [&] { loss = cross_entropy_over_ranks(logits, target, 100, group); });
        EXPECT_EQ(sum_over_ranks(*group, {double(sent)})[0], 2 * 3 * 3 * kTokens * 4);
        EXPECT_EQ(bytes_sent(group, [&] { loss.backward(); }), 0u);
        EXPECT_THAT(
            [&] { cross_entropy_over_ranks(logits, target + 90, 100, group); },
            ThrowsMessage<Exception>(HasSubstr("a target is 100, but there are 100 classes")));
        EXPECT_THAT([&] { cross_entropy_over_ranks(logits, target, 96, group); },
                    ThrowsMessage<Exception>(HasSubstr("of 96 classes; found 25")));
      },
      "all_reduce=ring");
}

TEST(ParallelLinear, GradientsAreThoseOfDifferences) {
  on_parallel_ranks(3, [](const ProcessGroup& group) {
    SplitMlp split = drawn_alike(5, [&] { return SplitMlp(3, 4, group); });
    split.to(torch::kFloat64);
    auto x = (torch::sin(torch::arange(6, torch::kFloat64)) * 2).view({2, 3}).requires_grad_();
    const auto target = torch::arange(2);
    // Replicated; it counts once: a third on each rank.
    gradcheck(group, {x, split.down->bias}, true, [&] {
      return torch::tanh(split.forward(x)).sum() / (torch::GradMode::is_enabled() ? 1 : 3);
    });
    auto logits = torch::cos(torch::arange(4, torch::kFloat64) + group->getRank()).view({2, 2});
    logits.requires_grad_();
    gradcheck(group, {logits}, false, [&] {
      return cross_entropy_over_ranks(logits, target, 6, group) /
             (torch::GradMode::is_enabled() ? 1 : 3);
    });
  });
}

}  // namespace
}  // namespace gradwire::test
