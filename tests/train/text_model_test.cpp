#include <gtest/gtest.h>

#include "gradwire/recipe/models.h"
#include "gradwire/recipe/trainer.h"
#include "tests/support/idx_files.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/torch/thread_group.h"

namespace gradwire::test {
namespace {

recipe::ModelConfig small() {
  return {.name = "transformer", .width = 16, .layers = 2, .heads = 2, .context = 12};
}

TEST(TextModel, GivesLogProbabilitiesOfEveryByte) {
  const torch::NoGradGuard no_grad;
  auto model = recipe::make_model(small());
  const auto output = model->forward(torch::randint(256, {3, 12}, torch::kInt64));
  ASSERT_EQ(output.sizes(), (at::IntArrayRef{3, 256, 12}));
  EXPECT_TRUE(output.exp().sum(1).allclose(torch::ones({3, 12})));
}

TEST(TextModel, LooksAtNothingThatComesLater) {
  const torch::NoGradGuard no_grad;
  auto model = recipe::make_model(small());
  for (auto& parameter : model->parameters()) parameter.add_(torch::randn_like(parameter), 0.3);
  const auto text = torch::randint(256, {1, 12}, torch::kInt64);
  const auto before = model->forward(text);
  text[0][7] = (text[0][7] + 1) % 256;
  const auto changed = (model->forward(text) - before).abs().amax({0, 1});
  EXPECT_LT(changed.narrow(0, 0, 7).max().item<double>(), 1e-6);
  EXPECT_GT(changed.narrow(0, 7, 5).min().item<double>(), 1e-5) << "and at all that came before";
}

TEST(TextModel, TrainsOnAShorterTextThanItsContext) {
  auto model = recipe::make_model(small());
  const auto output = model->forward(torch::randint(256, {2, 5}, torch::kInt64));
  EXPECT_EQ(output.sizes(), (at::IntArrayRef{2, 256, 5}));
  output.sum().backward();
  for (const auto& parameter : model->parameters()) EXPECT_TRUE(parameter.grad().defined());
}

TEST(TextModel, LearnsATextByHeart) {
  const TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 400; ++i) text += "to be, or not; ";
  write_file(folder / "text", text);
  recipe::TrainConfig config;
  config.data = {.name = "text", .path = folder / "text", .context = 12};
  config.model = small();
  config.optimizer = {.name = "adam", .learning_rate = 0.01};
  config.batch_size = 16;
  config.epochs = 4;
  config.checkpoint = "";
  const SteadyClock clock;
  run_on_threads(2, [&](const auto& group) {
    const auto summary = recipe::train(config, {.group = group, .clock = &clock}).summary;
    EXPECT_EQ(summary.test_images, 12 * (6000 / 12 / 10 - 1)) << "bytes with a target";
    EXPECT_LT(summary.test_loss, 0.5);
    EXPECT_GT(summary.test_accuracy, 0.8);
  });
}

}  // namespace
}  // namespace gradwire::test
