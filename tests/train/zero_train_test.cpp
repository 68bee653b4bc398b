#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "gradwire/recipe/trained_model.h"
#include "gradwire/recipe/trainer.h"
#include "gradwire/train/checkpoint/safetensors.h"
#include "tests/support/idx_files.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/torch/loopback.h"
#include "tests/support/torch/thread_group.h"

namespace gradwire::test {
namespace {

struct ZeroTrain : ::testing::TestWithParam<int> {
  ZeroTrain() {
    write_image_data(folder.path(), 330, 101);
    config.model = {.name = "mlp", .hidden = 33};
    config.data.path = folder.path();
    config.optimizer.learning_rate = 0.02;
    config.zero.stage3_param_persistence_threshold = 0;
    config.epochs = 2;
    config.batch_size = 32;
  }

  /// Trains on two threads as ranks; returns the tensors that rank 0 wrote.
  std::map<std::string, torch::Tensor> train_at(int stage) {
    config.zero.stage = stage;
    const auto output = folder / std::to_string(stage);
    const auto run = [&](const auto& group) {
      const auto result =
          recipe::train(config, {.group = group, .clock = &clock, .output = output});
      EXPECT_GT(result.summary.test_accuracy, 0.3);
    };
    config.parallel.codec == "none" ? run_on_threads(2, run) : run_on_loopback(2, run);
    return load_safetensors(output / "model.safetensors").tensors;
  }

  void expect_data_parallels(double tolerance) {
    const auto expected = train_at(0);
    const auto values = train_at(GetParam());
    ASSERT_EQ(values.size(), 4u);
    for (const auto& [name, tensor] : values) {
      EXPECT_LE((tensor - expected.at(name)).abs().max().item<double>(), tolerance) << name;
    }
  }

  using Tensors = std::map<std::string, torch::Tensor>;

  /// Returns the Euclidean distance of two models' parameters.
  static double distance(const Tensors& a, const Tensors& b) {
    double squares = 0;
    for (const auto& [name, tensor] : a) {
      squares += (tensor - b.at(name)).square().sum().item<double>();
    }
    return std::sqrt(squares);
  }

  TemporaryFolder folder;
  SteadyClock clock;
  recipe::TrainConfig config;
};

INSTANTIATE_TEST_SUITE_P(Stages, ZeroTrain, ::testing::Values(1, 2, 3));

TEST_P(ZeroTrain, MakesTheModelOfStage0) {
  expect_data_parallels(0);
}

TEST_P(ZeroTrain, WithParameterGroupsToo) {
  config.optimizer.weight_decay = 0.1;
  const auto whole = train_at(0);
  auto fast = config.optimizer;
  fast.learning_rate *= 2;
  auto undecayed = config.optimizer;
  undecayed.weight_decay = 0;
  config.optimizer.groups = {{{"*.bias"}, undecayed}, {{"*"}, fast}};
  expect_data_parallels(0);
  EXPECT_GT(distance(train_at(0), whole), 0.01);
}

TEST_P(ZeroTrain, WithClippingAndAccumulationToo) {
  config.gradient_clipping = 0.5;
  config.accumulation_steps = 2;
  config.parallel.overlap = step::Overlap::backward;
  expect_data_parallels(1e-6);
}

TEST_P(ZeroTrain, WithACodecComesAsNearAsStage0) {
  const auto exact = train_at(0);
  config.parallel.codec = "int8";
  config.parallel.codec_min_elements = 16;
  config.parallel.bucket_cap_mb = 0.0005;
  const double expected = distance(train_at(0), exact);
  const double found = distance(train_at(GetParam()), exact);
  EXPECT_GT(found, 0) << "int8 has lost something";
  EXPECT_LT(found, 2 * expected);
}

TEST(ZeroOptionsOfAConfiguration, AreWhatItsKeysSay) {
  const auto config = recipe::parse_train_config(nlohmann::json::parse(R"({
    "zero": {"stage": 3, "reduce_bucket_size": 2097152, "overlap_comm": false,
             "stage3_prefetch_bucket_size": 7, "stage3_param_persistence_threshold": 8},
    "gradient_clipping": 1.5, "parallel": {"codec": "int8", "codec_min_elements": 9}
  })"));
  const auto options = recipe::zero_options(config, {}, nullptr);
  EXPECT_EQ(options.stage, 3);
  EXPECT_EQ(options.bucket_cap_mb, 8) << "of elements that have four bytes";
  EXPECT_EQ(options.overlap, step::Overlap::none);
  EXPECT_EQ(options.prefetch_elements, 7);
  EXPECT_EQ(options.min_block_elements, 8);
  EXPECT_EQ(options.max_grad_norm, 1.5);
  EXPECT_EQ(options.codec, "int8");
  EXPECT_EQ(options.codec_min_elements, 9u);
  EXPECT_FALSE(options.parameters.has_value());
}

TEST(ZeroOptionsOfAConfiguration, CountElementsOfTheirOwnBytes) {
  const auto config = recipe::parse_train_config(nlohmann::json::parse(R"({
    "zero": {"stage": 1, "reduce_bucket_size": 1048576}, "precision": {"parameters": "bf16"}
  })"));
  const auto options = recipe::zero_options(config, {}, nullptr);
  EXPECT_EQ(options.bucket_cap_mb, 2);
  EXPECT_EQ(options.parameters, torch::kBFloat16);
}

TEST(ZeroOptionsOfAConfiguration, AreThoseOfParallelUnlessZeroSaysOtherwise) {
  const auto config = recipe::parse_train_config(nlohmann::json::parse(R"({
    "zero": {"stage": 3}, "parallel": {"bucket_cap_mb": 3, "overlap": "backward"}
  })"));
  const auto options = recipe::zero_options(config, {}, nullptr);
  EXPECT_EQ(options.bucket_cap_mb, 3);
  EXPECT_EQ(options.overlap, step::Overlap::backward);
  EXPECT_EQ(options.prefetch_elements, 1'000'000);
  EXPECT_EQ(options.min_block_elements, 10'000);
}

TEST_P(ZeroTrain, InFp16LearnsToo) {
  config.precision = config.parameters = Precision::fp16;
  EXPECT_EQ(train_at(GetParam()).at("hidden.weight").scalar_type(), torch::kHalf);
}

}  // namespace
}  // namespace gradwire::test
