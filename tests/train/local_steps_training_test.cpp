#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/recipe/trainer.h"
#include "tests/support/idx_files.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/torch/thread_group.h"

namespace gradwire::test {
namespace {

struct LocalStepsTraining : ::testing::Test {
  LocalStepsTraining() {
    write_image_data(folder.path(), 330, 101);
    config.model = {.name = "mlp", .hidden = 32};
    config.data.path = folder.path();
    config.optimizer.learning_rate = 0.02;
    config.epochs = 6;
    config.batch_size = 32;
    config.checkpoint = "";
  }

  std::vector<recipe::TrainingResult> train_on(int ranks) {
    std::vector<recipe::TrainingResult> results(static_cast<std::size_t>(ranks));
    run_on_threads(ranks, [&](const auto& group) {
      results[static_cast<std::size_t>(group->getRank())] =
          recipe::train(config, {.group = group, .clock = &clock});
    });
    return results;
  }

  static double difference(const recipe::TrainingResult& a, const recipe::TrainingResult& b) {
    double largest = 0;
    const auto first = a.model->parameters();
    const auto second = b.model->parameters();
    for (std::size_t i = 0; i < first.size(); ++i) {
      largest = std::max(largest, (first[i] - second[i]).abs().max().template item<double>());
    }
    return largest;
  }

  TemporaryFolder folder;
  SteadyClock clock;
  recipe::TrainConfig config;
};

TEST_F(LocalStepsTraining, OneStepWithMomentumIsSynchronousTraining) {
  const auto synchronous = train_on(4);
  config.local_steps = {.steps = 1, .enabled = true};
  const auto local = train_on(4);
  EXPECT_LT(difference(synchronous[0], local[0]), 1e-4);
  EXPECT_GT(difference(synchronous[0], local[0]), 0) << "another order of additions";
}

TEST_F(LocalStepsTraining, LearnsAndEndsEqualOnAllRanks) {
  config.local_steps = {.steps = 8, .enabled = true};
  const auto plain = train_on(4);
  EXPECT_GT(plain[0].summary.test_accuracy, 0.9);
  EXPECT_EQ(difference(plain[0], plain[3]), 0);
  config.local_steps = {.steps = 6,
                        .outer_learning_rate = 0.7,
                        .outer_momentum = 0.5,
                        .fragments = 2,
                        .overlap_steps = 1,
                        .mixing = 0.5,
                        .enabled = true};
  const auto streaming = train_on(4);
  EXPECT_GT(streaming[0].summary.test_accuracy, 0.9);
  EXPECT_EQ(difference(streaming[0], streaming[3]), 0);
}

TEST_F(LocalStepsTraining, SaysHowManyBytesAStepTook) {
  const double dense = train_on(2)[0].summary.gradient_bytes;
  config.local_steps = {.steps = 10, .enabled = true};
  EXPECT_DOUBLE_EQ(train_on(2)[0].summary.gradient_bytes, dense / 10);  // The run has 60 steps.
}

TEST_F(LocalStepsTraining, WorksWithAnyInnerOptimizer) {
  for (const std::string name : {"adam", "radam", "yogi", "lars", "lamb", "ranger_lars"}) {
    config.optimizer = {.name = name, .learning_rate = name == "lars" ? 5 : 0.01};
    if (name == "ranger_lars") {
      config.optimizer.learning_rate = 0.03;
      config.optimizer.trust_coefficient = 1;
    }
    config.local_steps = {.steps = 5, .enabled = true};
    const auto results = train_on(2);
    EXPECT_GT(results[0].summary.test_accuracy, 0.9) << name;
    EXPECT_EQ(difference(results[0], results[1]), 0) << name;
  }
}

}  // namespace
}  // namespace gradwire::test
