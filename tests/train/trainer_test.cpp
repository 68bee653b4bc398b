#include "gradwire/recipe/trainer.h"

#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/recipe/optimizers.h"
#include "gradwire/recipe/run_recorder.h"
#include "gradwire/train/checkpoint/safetensors.h"
#include "tests/support/idx_files.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/torch/thread_group.h"

namespace gradwire::test {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

struct TrainerTest : ::testing::Test {
  TrainerTest() {
    write_image_data(folder.path(), 330, 101);
    config.model = {.name = "mlp", .hidden = 32};
    config.data.path = folder.path();
    config.optimizer.learning_rate = 0.02;
    config.schedule = {.warmup_epochs = 1, .decay = "cosine", .final_fraction = 0.1};
    config.epochs = 6;
    config.batch_size = 32;
  }

  /// Trains on threads as ranks; returns the result of rank 0.
  recipe::TrainingResult train_on(int ranks, const std::string& output) {
    recipe::TrainingResult result;
    run_on_threads(ranks, [&](const auto& group) {
      auto mine = recipe::train(config, {.group = group,
                                         .clock = &clock,
                                         .progress = group->getRank() == 0 ? &progress : nullptr,
                                         .output = folder / output});
      if (group->getRank() == 0) result = std::move(mine);
    });
    return result;
  }

  double difference(const std::string& a, const std::string& b) {
    const auto first = load_safetensors(folder / a / "model.safetensors").tensors;
    const auto second = load_safetensors(folder / b / "model.safetensors").tensors;
    EXPECT_EQ(first.size(), 4u);
    double largest = 0;
    for (const auto& [name, tensor] : first) {
      largest = std::max(largest, (tensor - second.at(name)).abs().max().template item<double>());
    }
    return largest;
  }

  TemporaryFolder folder;
  SteadyClock clock;
  std::ostringstream shown;
  report::ProgressPrinter progress{shown, false};
  recipe::TrainConfig config;
};

TEST_F(TrainerTest, LearnsAndSaysHowItWent) {
  config.batch_size = 30;
  const auto summary = train_on(3, "out").summary;
  EXPECT_GT(summary.test_accuracy, 0.95);
  EXPECT_EQ(summary.test_images, 101);
  EXPECT_EQ(summary.steps, 6 * (330 / 30));
  EXPECT_GT(summary.gradient_bytes, 0);
  EXPECT_EQ(summary.sent_bytes, -1) << "threads do not count";
  EXPECT_THAT(shown.str(), HasSubstr("epoch 6/6"));
  EXPECT_TRUE(std::filesystem::exists(summary.checkpoint));
}

TEST_F(TrainerTest, RepeatsBitForBit) {
  config.model.dropout = 0.2;
  train_on(1, "first");
  train_on(1, "second");
  EXPECT_EQ(difference("first", "second"), 0);
  config.seed = 2;
  train_on(1, "third");
  EXPECT_GT(difference("first", "third"), 1e-3);
}

TEST_F(TrainerTest, RanksAndAccumulationDoNotChangeTheModel) {
  train_on(1, "one");
  train_on(4, "four");
  config.accumulation_steps = 2;
  train_on(4, "accumulated");
  EXPECT_LT(difference("one", "four"), 1e-4);
  EXPECT_LT(difference("one", "accumulated"), 1e-4);
}

TEST_F(TrainerTest, PadsTheLastBatchWhenToldTo) {
  config.data.uneven = UnevenBatch::pad;
  EXPECT_EQ(train_on(2, "out").summary.steps, 6 * (330 / 32 + 1));
}

TEST(StepMeter, CountsWaitingForDataByItself) {
  recipe::StepMeter meter;
  const Time begin{};
  meter.begin(begin, {}, 0);
  meter.on_data(begin + milliseconds(4));
  meter.end(begin + milliseconds(15), {.exposed = milliseconds(1)}, 0);
  EXPECT_DOUBLE_EQ(meter.data_seconds(), 0.004);
  EXPECT_DOUBLE_EQ(meter.compute_seconds(), 0.010);
  EXPECT_EQ(meter.total(), milliseconds(15));
}

TEST(StepMeter, SaysHowLongALongRunWillTake) {
  recipe::StepMeter meter;
  Time now{};
  for (int step = 0; step < 1000; ++step) {
    meter.begin(now, {}, -1);
    meter.end(now += std::chrono::minutes(10), {}, -1);
  }
  EXPECT_EQ(meter.time_of(1'000'000) / std::chrono::hours(1), 1'000'000 / 6);
}

TEST(LearningRate, WarmsUpThenFollowsTheCosine) {
  const recipe::ScheduleConfig schedule{
      .warmup_epochs = 1, .decay = "cosine", .final_fraction = 0.1};
  EXPECT_DOUBLE_EQ(recipe::learning_rate_factor(schedule, 0, 50, 10), 0.1);
  EXPECT_DOUBLE_EQ(recipe::learning_rate_factor(schedule, 9, 50, 10), 1.0);
  EXPECT_DOUBLE_EQ(recipe::learning_rate_factor(schedule, 10, 50, 10), 1.0);
  EXPECT_DOUBLE_EQ(recipe::learning_rate_factor(schedule, 30, 50, 10), 0.55);
  EXPECT_NEAR(recipe::learning_rate_factor(schedule, 50, 50, 10), 0.1, 1e-12);
  EXPECT_DOUBLE_EQ(recipe::learning_rate_factor({}, 49, 50, 10), 1.0);
  EXPECT_DOUBLE_EQ(recipe::learning_rate_factor({.warmup_epochs = 9, .decay = "cosine"}, 9, 10, 10),
                   10. / 90);
}

TEST(StepMeter, SeparatesComputeFromWaiting) {
  recipe::StepMeter meter;
  step::StepStats stats;
  Time now{};
  double sent = 5;
  for (const int waited : {1, 3, 2}) {
    meter.begin(now, stats, sent);
    now += milliseconds(10 + waited);
    stats.exposed += milliseconds(waited);
    stats.bytes += 100;
    sent += 150;
    meter.end(now, stats, sent);
    now += milliseconds(1000);  // Time between steps does not count.
  }
  EXPECT_DOUBLE_EQ(meter.compute_seconds(), 0.010);
  EXPECT_DOUBLE_EQ(meter.exposed_seconds(), 0.002);
  EXPECT_DOUBLE_EQ(meter.gradient_bytes(), 100);
  EXPECT_DOUBLE_EQ(meter.sent_bytes(), 150);
  meter.update_sent(sent + 30);  // Includes bytes that were in flight.
  EXPECT_DOUBLE_EQ(meter.sent_bytes(), 160);
  EXPECT_DOUBLE_EQ(meter.communication_share(), 6.0 / 36);
  EXPECT_EQ(meter.total(), milliseconds(36));
}

TEST(Trainer, SharesTheCores) {
  EXPECT_EQ(recipe::threads_per_rank(16, 4), 4);
  EXPECT_EQ(recipe::threads_per_rank(2, 4), 1);
}

}  // namespace
}  // namespace gradwire::test
