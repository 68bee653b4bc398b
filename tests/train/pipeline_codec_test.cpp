#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/base/error.h"
#include "gradwire/codec/catalogue.h"
#include "gradwire/torch/process_group.h"
#include "gradwire/train/pipeline/activation_codec.h"
#include "gradwire/train/pipeline/pipeline.h"
#include "tests/train/pipeline_model.h"

namespace gradwire::test {
namespace {

using ::testing::HasSubstr;

Pipeline::Options coded_options(const ProcessGroup& group, const ActivationCodecs& codecs,
                                const std::string& schedule = "1f1b") {
  auto options = pipeline_options(group, schedule, 4);
  options.activation_codec = codecs;
  return options;
}

struct CodedCase {
  ActivationCodecs codecs;
  std::string schedule = "1f1b";
  int ranks = 3;
  bool recompute = false;
  int steps = 6;
};

NamedValues train_coded(const CodedCase& what) {
  TrainedParts trained;
  on_ranks(what.ranks, [&](const ProcessGroup& group) {
    auto options = coded_options(group, what.codecs, what.schedule);
    options.recompute = what.recompute;
    Pipeline model(shared_layers(), options);
    for (int step = 0; step < what.steps; ++step) {
      const auto batch = pipeline_batch(7, step);
      model.train_step(batch.inputs, batch.targets);
    }
    trained.take(state_values(model));
  });
  return trained.values();
}

TEST(PipelineCodec, BitsDependOnTheCutAlone) {
  for (const std::string codec : {"int8", "qsgd", "rotation:4"}) {
    const CodedCase what{.codecs = {codec, codec}};
    const NamedValues expected = train_coded(what);
    EXPECT_FALSE(torch::equal(expected.at("input.weight"), train_coded({}).at("input.weight")))
        << codec;
    for (const std::string schedule : {"gpipe", "1f1b", "zero_bubble"}) {
      expect_same(train_coded({.codecs = what.codecs, .schedule = schedule}), expected, schedule);
    }
    expect_same(train_coded({.codecs = what.codecs, .recompute = true}), expected, "recomputed");
  }
  const CodedCase interleaved{.codecs = {"int8", "bf16"}, .schedule = "interleaved", .ranks = 2};
  expect_same(train_coded(interleaved), train_coded(interleaved), "a rank with two stages");
  const CodedCase asynchronous{.codecs = {"qsgd", "int8"}, .schedule = "pipedream"};
  expect_same(train_coded(asynchronous), train_coded(asynchronous), "an asynchronous schedule");
}

TEST(PipelineCodec, NothingIsLostBetweenStagesOfOneRank) {
  expect_same(train_coded({.codecs = {"int4", "int4"}, .ranks = 1}), train_coded({.ranks = 1}),
              "one rank");
}

/// Notes what passes through it in training, and the gradient that comes back.
struct NotedImpl : torch::nn::Module {
  explicit NotedImpl(std::vector<torch::Tensor>& a, std::vector<torch::Tensor>& g)
      : activations(a), gradients(g) {
    weight = register_parameter("weight", torch::ones({5}));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    if (!torch::GradMode::is_enabled()) return x;
    const bool first = !x.requires_grad();
    const torch::Tensor y = x * weight;
    const torch::Tensor& crosses = first ? y : x;
    activations.push_back(crosses.detach().clone());
    crosses.register_hook(
        [this](const torch::Tensor& gradient) { gradients.push_back(gradient.detach().clone()); });
    return y;
  }

  std::vector<torch::Tensor>& activations;
  std::vector<torch::Tensor>& gradients;
  torch::Tensor weight;
};
TORCH_MODULE(Noted);

torch::Tensor through_codec(const std::string& name, const torch::Tensor& tensor) {
  const ActivationCodec codec(name);
  torch::Tensor decoded = torch::empty_like(tensor);
  codec.decode(codec.encode(tensor, 1), 2, decoded);  // These codecs do not use the seed.
  return decoded;
}

TEST(PipelineCodec, AStageReceivesTheRoundTripOfWhatIsSent) {
  std::vector<torch::Tensor> activations[2], gradients[2];
  on_ranks(2, [&](const ProcessGroup& group) {
    const auto rank = static_cast<std::size_t>(group->getRank());
    Layers layers;
    for (const std::string name : {"a", "b"}) {
      layers.add(name, [&, rank] { return Noted(activations[rank], gradients[rank]); });
    }
    Pipeline model(layers, coded_options(group, {"int8", "bf16"}, "gpipe"));
    const auto batch = pipeline_batch(7, 0);
    model.train_step(batch.inputs, batch.targets);
  });
  ASSERT_EQ(activations[1].size(), 4);
  ASSERT_EQ(gradients[0].size(), 4);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(activations[1][i].size(0), i < 3 ? 2 : 1);
    EXPECT_FALSE(torch::equal(activations[1][i], activations[0][i]));
    EXPECT_TRUE(torch::equal(activations[1][i], through_codec("int8", activations[0][i])));
    EXPECT_FALSE(torch::equal(gradients[0][i], gradients[1][i]));
    EXPECT_TRUE(torch::equal(gradients[0][i], through_codec("bf16", gradients[1][i])));
  }
}

TEST(PipelineCodec, SendsTheEncodedBytes) {
  for (const ActivationCodecs& codecs :
       {ActivationCodecs{"none", "none"}, {"int8", "none"}, {"int4", "bf16"}, {"none", "int8"}}) {
    const auto bytes_of_step = [](const std::string& codec) {
      std::size_t bytes = 0;
      for (const std::size_t samples : {2, 2, 2, 1}) {  // A sample has 8 values.
        const std::size_t count = 8 * samples;
        bytes += codec == "none" ? 4 * count
                                 : value_or_throw(codec::make_codec(codec))->encoded_bytes(count);
      }
      return bytes;
    };
    on_ranks(2, [&](const ProcessGroup& group) {
      constexpr std::size_t kCodecSteps = 3;
      Pipeline model(shared_layers(), coded_options(group, codecs));
      const auto batch = pipeline_batch(7, 0);
      model.train_step(batch.inputs, batch.targets);
      const std::size_t sent = payload_of(group, [&] {
        for (std::size_t i = 0; i < kCodecSteps; ++i) model.train_step(batch.inputs, batch.targets);
      });
      const std::string& own = group->getRank() == 0 ? codecs.forward : codecs.backward;
      EXPECT_EQ(sent, kCodecSteps * bytes_of_step(own)) << group->getRank() << ": " << own;
    });
  }
}

TEST(PipelineCodec, EachBoundaryHasItsOwn) {
  std::vector<std::size_t> sent(3);
  on_ranks(3, [&](const ProcessGroup& group) {
    Pipeline model(shared_layers(), coded_options(group, {"int8,none", "none,bf16"}));
    const auto batch = pipeline_batch(8, 0);
    model.train_step(batch.inputs, batch.targets);
    sent[static_cast<std::size_t>(group->getRank())] =
        payload_of(group, [&] { model.train_step(batch.inputs, batch.targets); });
  });
  constexpr std::size_t kValues = 2 * 8;  // Values of a micro-batch; there are four.
  const auto bytes_of = [](const std::string& codec) {
    return value_or_throw(codec::make_codec(codec))->encoded_bytes(kValues);
  };
  EXPECT_EQ(sent[0], 4 * bytes_of("int8"));
  EXPECT_EQ(sent[1], 4 * (4 * kValues + 4 * kValues));
  EXPECT_EQ(sent[2], 4 * bytes_of("bf16"));
}

TEST(PipelineCodec, LearnsAsWithout) {
  const auto losses_of = [](const ActivationCodecs& codecs) {
    std::vector<double> losses;
    on_ranks(3, [&](const ProcessGroup& group) {
      Pipeline model(shared_layers(), coded_options(group, codecs));
      for (int step = 0; step < 150; ++step) {
        const auto batch = pipeline_batch(24, 0);
        const LossSum loss = model.train_step(batch.inputs, batch.targets);
        if (loss.count > 0) losses.push_back(loss.mean());
      }
    });
    return losses;
  };
  const std::vector<double> without = losses_of({});
  EXPECT_LT(without.back(), 0.3 * without.front());
  const std::vector<double> with = losses_of({"int8", "bf16"});
  EXPECT_LT(with.back(), 0.3 * with.front());
  EXPECT_NE(with, without);
}

TEST(PipelineCodec, EvaluatesExactly) {
  torch::Tensor exact;
  for (const std::string codec : {"none", "int4"}) {
    on_ranks(2, [&](const ProcessGroup& group) {
      Pipeline model(shared_layers(), coded_options(group, {codec, codec}));
      const torch::Tensor output = model.evaluate(pipeline_batch(7, 0).inputs);
      if (!output.defined()) return;
      if (codec == "none") exact = output;
      EXPECT_TRUE(torch::equal(output, exact));
    });
  }
}

std::string refusal_of_codecs(const ActivationCodecs& codecs,
                              const Layers& layers = shared_layers()) {
  try {
    on_ranks(2, [&](const ProcessGroup& group) {
      Pipeline model(layers, coded_options(group, codecs));
      const auto batch = pipeline_batch(7, 0);
      model.train_step(batch.inputs, batch.targets);
    });
  } catch (const Exception& e) {
    return e.what();
  }
  return "";
}

TEST(PipelineCodec, NamesWhatItCannotEncode) {
  EXPECT_THAT(refusal_of_codecs({"int9", "none"}), HasSubstr("did you mean \"int8\""));
  EXPECT_THAT(refusal_of_codecs({"none", "power_sgd"}), HasSubstr("not a codec of single values"));
  EXPECT_THAT(refusal_of_codecs({"int8,none", "none"}), HasSubstr("one for each of 1 boundaries"));
  Layers doubles;
  doubles.add("input", [] {
    return torch::nn::Functional([](const torch::Tensor& x) { return x.to(torch::kFloat64); });
  });
  doubles.add("output", [] {
    torch::nn::Linear linear(5, 3);
    linear->to(torch::kFloat64);
    return linear;
  });
  EXPECT_THAT(refusal_of_codecs({"int8", "none"}, doubles), HasSubstr("stage 1 receives Double"));
}

}  // namespace
}  // namespace gradwire::test
