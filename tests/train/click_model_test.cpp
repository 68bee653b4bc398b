#include "gradwire/recipe/click_model.h"

#include <algorithm>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "gradwire/recipe/models.h"
#include "gradwire/recipe/trainer.h"
#include "gradwire/servers/row_store.h"
#include "gradwire/train/checkpoint/safetensors.h"
#include "tests/support/error_of.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/torch/thread_group.h"
#include "tests/train/zero_model.h"

/// Model "dlrm" on data "click_through".
namespace gradwire::test {
namespace {

recipe::ModelConfig small_dlrm() {
  return {.name = "dlrm", .hidden = 8, .width = 4, .rows = 50, .fields = 3, .dense = 2};
}

TEST(ClickModel, GivesLogProbabilitiesOfTwoClasses) {
  const torch::NoGradGuard no_grad;
  auto model = recipe::make_model(small_dlrm());
  const auto features =
      torch::tensor({{0.5, -1.0, 3.0, 20.0, 49.0}, {0.1, 0.2, 3.0, 17.0, 40.0}}, torch::kFloat64);
  const auto output = model->forward(features);
  ASSERT_EQ(output.sizes(), (at::IntArrayRef{2, 2}));
  EXPECT_TRUE(output.exp().sum(1).allclose(torch::ones({2})));
}

/// The first layer has the formula's vectors, and the second their pairs.
TEST(ClickModel, TakesTheProductsOfEachPair) {
  const torch::NoGradGuard no_grad;
  torch::manual_seed(3);
  const Layers layers = recipe::make_layers(small_dlrm());
  auto features = layers.make(0), interactions = layers.make(1);
  const auto input = torch::tensor({{0.5, -1.0, 3.0, 20.0, 49.0}}, torch::kFloat64);
  const auto vectors = features.forward(input);
  ASSERT_EQ(vectors.sizes(), (at::IntArrayRef{1, 4, 4}));
  const auto table = features.ptr()->named_parameters()["embedding.weight"];
  EXPECT_TRUE(vectors[0].narrow(0, 1, 3).equal(
      table.index_select(0, torch::tensor({3, 20, 49}, torch::kInt64))));
  const auto out = interactions.forward(vectors)[0];
  ASSERT_EQ(out.size(0), 4 + 6);
  EXPECT_TRUE(out.narrow(0, 0, 4).equal(vectors[0][0]));
  EXPECT_NEAR(out[4].item<float>(), vectors[0][1].dot(vectors[0][0]).item<float>(), 1e-6);
  EXPECT_NEAR(out[9].item<float>(), vectors[0][3].dot(vectors[0][2]).item<float>(), 1e-6);
}

TEST(ClickModel, BeginsWithTheRowsThatServersWouldMake) {
  torch::manual_seed(3);
  auto model = recipe::make_model(small_dlrm());
  auto& features = recipe::click_features(model);
  const auto table = features.named_parameters()["embedding.weight"];
  std::vector<float> row(4);
  servers::initial_row(features.seed(), 17, row);
  EXPECT_TRUE(table[17].equal(torch::tensor(row)));
  EXPECT_LE(table.abs().max().item<float>(), 0.01F);
}

struct ClickTraining : testing::Test {
  ClickTraining() {
    config.data = {.name = "click_through",
                   .clicks = {.samples = 2048, .rows = 200, .fields = 3, .dense = 2}};
    config.model = small_dlrm();
    config.model.rows = 200;
    config.optimizer = {.name = "adam", .learning_rate = 0.01};
    config.batch_size = 64;
    config.epochs = 3;
  }

  report::TrainingSummary train_on(int ranks, const std::string& output) {
    report::TrainingSummary summary;
    run_on_threads(ranks, [&](const auto& group) {
      const auto mine =
          recipe::train(config, {.group = group, .clock = &clock, .output = folder / output});
      if (group->getRank() == 0) summary = mine.summary;
    });
    return summary;
  }

  double difference_of(const std::string& a, const std::string& b) {
    const auto tensors = [&](const std::string& output) {
      return load_safetensors(folder / output / "model.safetensors").tensors;
    };
    return difference(tensors(a), tensors(b));
  }

  TemporaryFolder folder;
  SteadyClock clock;
  recipe::TrainConfig config;
};

TEST_F(ClickTraining, LearnsMoreThanTheDenseFeaturesSay) {
  config.data.clicks.samples = 8192;
  config.epochs = 5;
  const double loss = train_on(1, "rows").test_loss;
  EXPECT_LT(loss, 0.55);
  config.optimizer.groups = {
      {.match = {"features.embedding.weight"}, .settings = {.name = "adam", .learning_rate = 0}}};
  EXPECT_GT(train_on(1, "no rows").test_loss, loss + 0.05);
}

TEST_F(ClickTraining, IsTheSameWithEachStrategy) {
  config.optimizer = {.learning_rate = 0.1};
  train_on(1, "one");
  train_on(4, "replicas");
  EXPECT_LT(difference_of("one", "replicas"), 1e-4);
  config.zero.stage = 1;
  train_on(2, "stage 1");
  EXPECT_LT(difference_of("one", "stage 1"), 1e-4);
  config.zero.stage = 3;
  config.zero.stage3_param_persistence_threshold = 0;
  train_on(2, "stage 3");
  EXPECT_LT(difference_of("one", "stage 3"), 1e-4);
  config.zero = {};
  config.servers = {.enabled = true, .beside_workers = true};
  train_on(2, "servers");
  EXPECT_LT(difference_of("one", "servers"), 1e-4);
}

TEST_F(ClickTraining, HasTheSameRowsOnServers) {
  config.optimizer = {.learning_rate = 0.1, .momentum = 0};
  config.schedule = {.warmup_epochs = 1, .decay = "cosine"};
  config.evaluate_every = 1;
  const auto plain = train_on(2, "plain");
  config.model.rows_are_served = true;
  config.servers = {.enabled = true,
                    .beside_workers = true,
                    .rows = {.enabled = true, .optimizer = "sgd", .learning_rate = 0.1}};
  const auto served = train_on(2, "synchronous");
  EXPECT_LT(difference_of("plain", "synchronous"), 1e-5);
  EXPECT_NEAR(served.test_loss, plain.test_loss, 1e-5);
  EXPECT_EQ(served.samples, "samples") << "not images";
  ASSERT_TRUE(served.rows);
  EXPECT_EQ(served.rows->max_permits, 1);
  EXPECT_EQ(served.rows->max_staleness, 0);
  EXPECT_GT(served.rows->made, 100);
}

TEST_F(ClickTraining, RepeatsBitForBitWithStaleRows) {
  config.model.rows_are_served = true;
  config.servers = {.enabled = true,
                    .beside_workers = true,
                    .rows = {.enabled = true, .staleness = 4, .learning_rate = 0.05}};
  const auto first = train_on(2, "first");
  config.servers.count = 1;
  train_on(2, "second");
  EXPECT_EQ(difference_of("first", "second"), 0);
  EXPECT_EQ(first.rows->max_permits, 5);
  EXPECT_EQ(first.rows->max_staleness, 4);
}

/// Rows on servers, and a checkpoint after every 10th of 96 steps.
struct ClickCheckpoints : ClickTraining {
  ClickCheckpoints() {
    config.model.rows_are_served = true;
    config.servers = {
        .enabled = true, .beside_workers = true, .rows = {.enabled = true, .learning_rate = 0.05}};
    config.checkpoint_every = 10;
    config.checkpoint_keep = 0;
  }

  /// A run that goes on from a step of the one in `output`.
  report::TrainingSummary resume_on(int ranks, const std::string& output, const std::string& step) {
    config.resume = folder / output / "checkpoints" / ("step-0000" + step);
    return train_on(ranks, "resumed");
  }
  std::string refused_on(int ranks) {
    return errors_on_threads(ranks, [&](const ProcessGroup& group) {
      recipe::train(config, {.group = group, .clock = &clock, .output = folder / "refused"});
    })[0];
  }
};

TEST_F(ClickCheckpoints, ResumeToTheSameBits) {
  for (const std::int64_t staleness : {0, 4}) {
    for (const int workers : {1, 2}) {
      config.resume.clear();
      config.servers.rows.staleness = staleness;
      const std::string output = "whole" + std::to_string(10 * staleness + workers);
      const auto whole = train_on(workers, output);
      EXPECT_EQ(whole.rows->max_permits, staleness + 1);
      const auto resumed = resume_on(workers, output, "50");
      EXPECT_EQ(resumed.steps, 46);
      EXPECT_EQ(resumed.rows->made, whole.rows->made);
      EXPECT_EQ(difference_of("resumed", output), 0) << staleness << " of " << workers;
    }
  }
  config.checkpoint_every = 0;
  config.resume.clear();
  config.servers.rows.staleness = 0;
  train_on(1, "without checkpoints");
  EXPECT_EQ(difference_of("without checkpoints", "whole1"), 0);
}

TEST_F(ClickCheckpoints, ResumeWithOtherNumbersOfWorkersAndServers) {
  config.servers.count = 2;
  const auto whole = train_on(2, "whole");
  for (const auto& [workers, servers] : {std::pair{2, 1}, {4, 3}, {1, 1}}) {
    config.servers.count = servers;
    const auto resumed = resume_on(workers, "whole", "50");
    EXPECT_EQ(resumed.rows->made, whole.rows->made);
    EXPECT_NEAR(resumed.test_loss, whole.test_loss, 1e-3) << workers;
    if (workers == 2) {
      EXPECT_EQ(difference_of("resumed", "whole"), 0);
    }
  }
  config.servers.rows.optimizer = "sgd";
  EXPECT_THAT(refused_on(2), testing::HasSubstr("another optimizer"));
}

TEST_F(ClickCheckpoints, NameWhatTheyLack) {
  train_on(1, "rows");
  config.resume = folder / "rows" / "checkpoints" / "step-000010";
  config.model.width = 8;
  EXPECT_THAT(refused_on(2), testing::HasSubstr("set model.width as it was"));
  config.model.width = 4;
  config.model.rows_are_served = false;
  for (const bool served : {false, true}) {
    config.servers = {.enabled = served, .beside_workers = true};
    EXPECT_THAT(refused_on(2), testing::HasSubstr("set servers.embeddings"));
  }
  config.servers = {};
  config.resume.clear();
  train_on(1, "plain");
  config.resume = folder / "plain" / "checkpoints" / "step-000010";
  config.model.rows_are_served = true;
  config.servers = {.enabled = true, .beside_workers = true, .rows = {.enabled = true}};
  EXPECT_THAT(refused_on(2), testing::HasSubstr("resume it without servers.embeddings"));
}

TEST(ClickConfig, GivesTheModelTheSizesOfTheData) {
  const auto config = recipe::parse_train_config(nlohmann::ordered_json::parse(
      R"({"data": {"name": "click_through", "rows": 500, "fields": 5, "dense": 3, "seed": 9,
          "samples": 77}, "model": {"width": 8}})"));
  EXPECT_EQ(config.model.name, "dlrm");
  EXPECT_EQ(config.model.rows, 500);
  EXPECT_EQ(config.model.fields, 5);
  EXPECT_EQ(config.model.dense, 3);
  EXPECT_EQ(config.model.width, 8);
  EXPECT_EQ(config.data.clicks.samples, 77);
  EXPECT_EQ(config.data.clicks.seed, 9U);
}

TEST(ClickConfig, RefusesWhatItDoesNotGoWith) {
  const auto message = [](const std::string& rest) {
    return error_of([&] {
      recipe::parse_train_config(
          nlohmann::ordered_json::parse(R"({"data": {"name": "click_through")" + rest));
    });
  };
  EXPECT_THAT(message(R"(}, "mesh": {"tensor": 2}})"),
              testing::HasSubstr("mesh.tensor is 2, but no layer"));
  EXPECT_THAT(message(R"(}, "model": {"name": "mlp"}})"), testing::HasSubstr("dlrm"));
  EXPECT_THAT(message(R"(, "path": "x"}})"), testing::HasSubstr("path"));
  const std::string rows = R"(}, "servers": {"place": "workers", "embeddings": {}})";
  EXPECT_EQ(message(rows + "}"), "no error");
  for (const std::string other :
       {R"("zero": {"stage": 1})", R"("mesh": {"pipeline": 2})", R"("local_steps": {"steps": 2})",
        R"("accumulation_steps": 2)", R"("gradient_clipping": 1)", R"("precision": "fp16")"}) {
    const std::string key = other.substr(1, other.find('"', 1) - 1);
    EXPECT_THAT(message(rows + ", " + other + "}"), testing::HasSubstr(key)) << other;
  }
  EXPECT_THAT(message(R"(}, "servers": {"mode": "async", "embeddings": {}}})"),
              testing::HasSubstr("servers.mode is of dense parameters"));
  EXPECT_THAT(message(R"(, "rows": 3}})"),
              testing::HasSubstr("each categorical field needs an id"));
}

}  // namespace
}  // namespace gradwire::test
