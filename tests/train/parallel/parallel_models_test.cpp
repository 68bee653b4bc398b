// Small models made of parallel layers, against the unsplit models.
#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/base/error.h"
#include "gradwire/train/parallel/parallel_conv.h"
#include "gradwire/train/parallel/parallel_cross_entropy.h"
#include "gradwire/train/parallel/parallel_embedding.h"
#include "gradwire/train/parallel/parallel_linear.h"
#include "gradwire/train/parallel/parallel_norm.h"
#include "gradwire/train/parallel/rank_functions.h"
#include "gradwire/train/parallel/sequence_parallel.h"
#include "gradwire/train/parallel/spatial_layers.h"
#include "tests/support/torch/thread_group.h"
#include "tests/train/parallel/parallel_ranks.h"

namespace gradwire::test {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr std::int64_t kVocabulary = 11;  // Divides by no number of ranks.
constexpr std::int64_t kWidth = 8;
constexpr std::int64_t kHeads = 4;

/// Causal attention of some heads. q, k, v: [batch, tokens, heads * size].
torch::Tensor attention(const torch::Tensor& q, const torch::Tensor& k, const torch::Tensor& v,
                        std::int64_t heads) {
  const auto by_head = [&](const torch::Tensor& x) {
    return x.view({x.size(0), x.size(1), heads, -1}).transpose(1, 2);
  };
  const auto result = at::scaled_dot_product_attention(by_head(q), by_head(k), by_head(v), {}, 0.0,
                                                       /*is_causal=*/true);
  return result.transpose(1, 2).flatten(2);
}

/// The layers of a block, unsplit. Layers are drawn in the order of their registration.
struct PlainLayers {
  using Columns = torch::nn::Linear;
  using Rows = torch::nn::Linear;
  using Norm = torch::nn::LayerNorm;
  using Embedding = torch::nn::Embedding;

  Columns columns(std::int64_t in, std::int64_t out) const { return Columns(in, out); }
  Rows rows(std::int64_t in, std::int64_t out) const { return Rows(in, out); }
  Norm norm() const { return Norm(torch::nn::LayerNormOptions({kWidth})); }
  Embedding embedding() const { return Embedding(kVocabulary, kWidth); }
  std::int64_t heads() const { return kHeads; }
  torch::Tensor loss(const torch::Tensor& logits, const torch::Tensor& target) const {
    return cross_entropy_sum().sum(logits, target);
  }
};

/// The same divided over a group, with sequence parallelism or without.
struct SplitLayers {
  using Columns = ColumnParallelLinear;
  using Rows = RowParallelLinear;
  using Norm = SequenceParallelLayerNorm;
  using Embedding = ParallelEmbedding;

  Columns columns(std::int64_t in, std::int64_t out) const {
    return Columns(ColumnParallelLinearOptions(in, out).sequence_dimension(sequence), group);
  }
  Rows rows(std::int64_t in, std::int64_t out) const {
    return Rows(RowParallelLinearOptions(in, out).sequence_dimension(sequence), group);
  }
  torch::nn::LayerNorm whole_norm() const { return PlainLayers().norm(); }
  Norm norm() const { return Norm(torch::nn::LayerNormOptions({kWidth}), group); }
  Embedding embedding() const {
    return Embedding(ParallelEmbeddingOptions(kVocabulary, kWidth).sequence_dimension(sequence),
                     group);
  }
  std::int64_t heads() const { return equal_part("attention heads", kHeads, group); }
  torch::Tensor loss(const torch::Tensor& logits, const torch::Tensor& target) const {
    return cross_entropy_over_ranks(logits, target, kVocabulary, group);
  }

  ProcessGroup group;
  std::optional<std::int64_t> sequence;
};

/// Without sequence parallelism norms are replicated, as in the unsplit model.
struct ReplicatedNorms : SplitLayers {
  using Norm = torch::nn::LayerNorm;
  Norm norm() const { return whole_norm(); }
};

/// A GPT of one block.
template <class Layers>
struct Gpt : torch::nn::Module {
  explicit Gpt(const Layers& given)
      : layers(given),
        heads(given.heads()),
        embedding(register_module("embedding", given.embedding())),
        norm1(register_module("norm1", given.norm())),
        query(register_module("query", given.columns(kWidth, kWidth))),
        key(register_module("key", given.columns(kWidth, kWidth))),
        value(register_module("value", given.columns(kWidth, kWidth))),
        out(register_module("out", given.rows(kWidth, kWidth))),
        norm2(register_module("norm2", given.norm())),
        up(register_module("up", given.columns(kWidth, 4 * kWidth))),
        down(register_module("down", given.rows(4 * kWidth, kWidth))),
        head(register_module("head", given.columns(kWidth, kVocabulary))) {}

  torch::Tensor loss(const torch::Tensor& tokens, const torch::Tensor& target) {
    auto x = embedding(tokens);
    const auto y = norm1(x);
    x = x + out(attention(query(y), key(y), value(y), heads));
    x = x + down(torch::gelu(up(norm2(x))));
    return layers.loss(head(x), target) / static_cast<double>(target.numel());
  }

  Layers layers;
  std::int64_t heads;
  typename Layers::Embedding embedding;
  typename Layers::Norm norm1;
  typename Layers::Columns query, key, value;
  typename Layers::Rows out;
  typename Layers::Norm norm2;
  typename Layers::Columns up;
  typename Layers::Rows down;
  typename Layers::Columns head;
};

/// Trains both models alike, and compares losses and parameters after some steps.
template <class Plain, class Split>
void expect_same_training(Plain& plain, Split& split, double tolerance,
                          const std::function<torch::Tensor(Plain&, int)>& plain_loss,
                          const std::function<torch::Tensor(Split&, int)>& split_loss) {
  expect_parts(split, plain, false);  // Initial weights.
  plain.to(torch::kFloat64);
  split.to(torch::kFloat64);
  torch::optim::Adam plain_optimizer(plain.parameters(), torch::optim::AdamOptions(0.01));
  torch::optim::Adam split_optimizer(split.parameters(), torch::optim::AdamOptions(0.01));
  for (int step = 0; step < 5; ++step) {
    plain_optimizer.zero_grad();
    split_optimizer.zero_grad();
    const auto expected = plain_loss(plain, step);
    const auto loss = split_loss(split, step);
    EXPECT_NEAR(loss.template item<double>(), expected.template item<double>(),
                step == 0 ? 1e-13 : tolerance)
        << "step " << step;
    expected.backward();
    loss.backward();
    expect_parts(split, plain, true, step == 0 ? 1e-12 : tolerance);
    plain_optimizer.step();
    split_optimizer.step();
  }
}

template <class Layers>
void expect_gpt_as_unsplit(const Layers& layers) {
  auto plain = drawn_alike(21, [] { return std::make_shared<Gpt<PlainLayers>>(PlainLayers{}); });
  auto split = drawn_alike(21, [&] { return std::make_shared<Gpt<Layers>>(layers); });
  const auto loss = [](auto& model, int step) {
    const auto tokens = (torch::arange(2 * 12).view({2, 12}) * 3 + step).remainder(kVocabulary);
    return model.loss(tokens, (tokens + 3).remainder(kVocabulary));
  };
  expect_same_training<Gpt<PlainLayers>, Gpt<Layers>>(*plain, *split, 1e-8, loss, loss);
}

TEST(ParallelModels, GptTrainsAsTheUnsplitModel) {
  for (const int ranks : {1, 2, 4}) {
    on_parallel_ranks(ranks, [&](const ProcessGroup& group) {
      SCOPED_TRACE(testing::Message() << ranks << " ranks");
      expect_gpt_as_unsplit(ReplicatedNorms{{group, std::nullopt}});
      expect_gpt_as_unsplit(SplitLayers{group, 1});
    });
  }
}

TEST(ParallelModels, HeadsThatDoNotDivideAreRefused) {
  on_parallel_ranks(3, [](const ProcessGroup& group) {
    EXPECT_THAT(
        [&] {
          Gpt<SplitLayers>(SplitLayers{group, std::nullopt});
        },
        ThrowsMessage<Exception>(HasSubstr("4 attention heads cannot be divided equally "
                                           "over 3 ranks")));
  });
}

torch::nn::Conv2dOptions resnet_conv(std::int64_t in, std::int64_t out, int stride) {
  return torch::nn::Conv2dOptions(in, out, 3).stride(stride).padding(1).bias(false);
}

/// A ResNet of a stem, one block with a projection, and a classifier.
struct PlainResNet : torch::nn::Module {
  PlainResNet() = default;
  torch::Tensor forward(const torch::Tensor& images) {
    auto x = pool(torch::relu(stem_norm(stem(images))));
    const auto y = norm2(second(torch::relu(norm1(first(x)))));
    x = torch::relu(y + shortcut(x));
    return classifier(x.mean({2, 3}));
  }
  torch::nn::Conv2d stem = register_module(
      "stem", torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 4, 7).stride(2).padding(3)));
  torch::nn::BatchNorm2d stem_norm = register_module("stem_norm", torch::nn::BatchNorm2d(4));
  torch::nn::MaxPool2d pool =
      torch::nn::MaxPool2d(torch::nn::MaxPool2dOptions(3).stride(2).padding(1));
  torch::nn::Conv2d first = register_module("first", torch::nn::Conv2d(resnet_conv(4, 6, 2)));
  torch::nn::GroupNorm norm1 = register_module("norm1", torch::nn::GroupNorm(2, 6));
  torch::nn::Conv2d second = register_module("second", torch::nn::Conv2d(resnet_conv(6, 6, 1)));
  torch::nn::GroupNorm norm2 = register_module("norm2", torch::nn::GroupNorm(2, 6));
  torch::nn::Conv2d shortcut =
      register_module("shortcut", torch::nn::Conv2d(torch::nn::Conv2dOptions(4, 6, 1).stride(2)));
  torch::nn::Linear classifier = register_module("classifier", torch::nn::Linear(6, 5));
};

struct SpatialResNet : torch::nn::Module {
  SpatialResNet(const SpatialParts& parts_, const ProcessGroup& group_)
      : parts(parts_), group(group_) {}
  torch::Tensor forward(const torch::Tensor& images) {
    auto x = divide(images, spatial_division(images.sizes().vec(), parts), group);
    x = stem(x);
    x = pool(x.with(torch::relu(stem_norm(x.own))));
    auto y = first(x);
    y = second(y.with(torch::relu(norm1(y.own))));
    y = y.with(torch::relu(norm2(y.own) + shortcut(x).own));
    return classifier(mean_over_space(y, group));
  }
  SpatialConv2d make(const torch::nn::Conv2dOptions& options) const {
    return SpatialConv2d(options, parts, group);
  }
  ParallelGroupNorm make_norm() const {
    return ParallelGroupNorm(torch::nn::GroupNormOptions(2, 6), group);
  }
  SpatialParts parts;
  ProcessGroup group;
  SpatialConv2d stem =
      register_module("stem", make(torch::nn::Conv2dOptions(3, 4, 7).stride(2).padding(3)));
  ParallelBatchNorm stem_norm =
      register_module("stem_norm", ParallelBatchNorm(torch::nn::BatchNormOptions(4), group));
  SpatialMaxPool2d pool =
      SpatialMaxPool2d(torch::nn::MaxPool2dOptions(3).stride(2).padding(1), parts, group);
  SpatialConv2d first = register_module("first", make(resnet_conv(4, 6, 2)));
  ParallelGroupNorm norm1 = register_module("norm1", make_norm());
  SpatialConv2d second = register_module("second", make(resnet_conv(6, 6, 1)));
  ParallelGroupNorm norm2 = register_module("norm2", make_norm());
  SpatialConv2d shortcut =
      register_module("shortcut", make(torch::nn::Conv2dOptions(4, 6, 1).stride(2)));
  torch::nn::Linear classifier = register_module("classifier", torch::nn::Linear(6, 5));
};

void expect_resnet_as_unsplit(const SpatialParts& parts, const ProcessGroup& group) {
  auto plain = drawn_alike(31, [] { return std::make_shared<PlainResNet>(); });
  auto split = drawn_alike(31, [&] { return std::make_shared<SpatialResNet>(parts, group); });
  const auto loss = [](auto& model, int step) {
    const auto images = torch::sin(torch::arange(3 * 3 * 21 * 18, torch::kFloat64) * 0.37 + step)
                            .view({3, 3, 21, 18});
    return torch::cross_entropy_loss(model.forward(images), torch::arange(3));
  };
  expect_same_training<PlainResNet, SpatialResNet>(*plain, *split, 1e-8, loss, loss);
}

TEST(ParallelModels, ResNetDividedBySpaceTrainsAsTheUnsplitModel) {
  for (const SpatialParts parts : {SpatialParts{1, 1}, {2, 1}, {1, 3}, {2, 2}, {4, 1}}) {
    on_parallel_ranks(parts.count(), [&](const ProcessGroup& group) {
      SCOPED_TRACE(testing::Message() << parts.height << " x " << parts.width);
      expect_resnet_as_unsplit(parts, group);
    });
  }
}

TEST(ParallelModels, TrainOnAnyBackend) {
  run_on_threads(4, [](const ProcessGroup& group) {
    expect_gpt_as_unsplit(ReplicatedNorms{{group, std::nullopt}});
    expect_gpt_as_unsplit(SplitLayers{group, 1});
    expect_resnet_as_unsplit({2, 2}, group);
  });
}

/// A stage by space, then one by samples: model parallelism for the convolutions, whose activations
/// are large, and data parallelism for the rest.
TEST(ParallelModels, SpaceBecomesSamples) {
  on_parallel_ranks(3, [](const ProcessGroup& group) {
    torch::nn::Conv2d plain(torch::nn::Conv2dOptions(1, 2, 3));
    SpatialConv2d split(torch::nn::Conv2dOptions(1, 2, 3), SpatialParts{3, 1}, group);
    fill_with_integers(*plain);
    copy_parts(*split, *plain);
    const auto images = integers({4, 1, 9, 5});
    const auto y = split(divide(images, divided({4, 1, 9, 5}, 2, 3), group));
    const auto samples = redivide(y, divided(y.division.shape, 0, 3), group);
    const auto expected = plain(images);
    const auto begin = part_begin(4, 3, group->getRank());
    expect_equal(samples.own, expected.narrow(0, begin, samples.own.size(0)), "samples");
    (samples.own * samples.own).sum().backward();
    (expected * expected).sum().backward();
    expect_parts(*split, *plain, true);
  });
}

}  // namespace
}  // namespace gradwire::test
