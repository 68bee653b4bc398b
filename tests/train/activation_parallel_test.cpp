#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "gradwire/base/clock.h"
#include "gradwire/memory/memory_ledger.h"
#include "gradwire/memory/memory_tracker.h"
#include "gradwire/recipe/models.h"
#include "gradwire/train/data_parallel/data_parallel.h"
#include "gradwire/train/zero/zero.h"
#include "tests/support/torch/thread_group.h"
#include "tests/train/small_models.h"

namespace gradwire::test {
namespace {

/// Trains on this rank's half of two batches, and returns the parameters.
template <class Parallel>
std::vector<torch::Tensor> train_two_steps(Parallel& model, const ProcessGroup& group) {
  const auto inputs = byte_samples(8).narrow(0, 4 * group->getRank(), 4);
  for (int i = 0; i < 2; ++i) {
    torch::nll_loss_nd(model(inputs), inputs.roll(i + 1, 1)).backward();
    model.step();
  }
  return model->parameters();
}

torch::nn::Sequential seeded(const recipe::ModelConfig& config) {
  static std::mutex mutex;  // Ranks are threads that share one generator.
  const std::lock_guard lock(mutex);
  torch::manual_seed(5);
  return recipe::make_model(config);
}

std::vector<torch::Tensor> parameters_after(step::Overlap overlap, std::int64_t checkpoints) {
  std::vector<torch::Tensor> parameters;
  run_on_threads(2, [&](const ProcessGroup& group) {
    DataParallel model(
        seeded(small_gpt(checkpoints, 0)),
        {.process_group = group, .bucket_cap_mb = 0.01, .optimizer = make_sgd, .overlap = overlap});
    const auto mine = train_two_steps(model, group);
    if (group->getRank() == 0) parameters = mine;
  });
  return parameters;
}

std::vector<torch::Tensor> trained_by_zero(int stage, std::int64_t checkpoints) {
  std::vector<torch::Tensor> parameters;
  run_on_threads(2, [&](const ProcessGroup& group) {
    Zero model(seeded(small_gpt(checkpoints, 0)),
               {.process_group = group, .stage = stage, .optimizer = make_sgd});
    train_two_steps(model, group);
    model.consolidate();
    if (group->getRank() == 0) {
      for (const auto& parameter : model->parameters()) parameters.push_back(parameter.clone());
    }
  });
  return parameters;
}

TEST(ActivationCheckpoint, TrainsTheSameInDataParallel) {
  for (const auto overlap : {step::Overlap::none, step::Overlap::backward, step::Overlap::full}) {
    expect_equal(parameters_after(overlap, 0), parameters_after(overlap, 3));
  }
}

TEST(ActivationCheckpoint, TrainsTheSameInZero) {
  const auto without = parameters_after(step::Overlap::none, 0);
  for (const int stage : {1, 2, 3}) expect_equal(without, trained_by_zero(stage, 3));
}

/// Live and peak bytes after `steps` steps.
std::pair<std::int64_t, std::int64_t> after_steps(int steps) {
  const SteadyClock clock;
  MemoryTracker tracker(clock);
  std::pair<std::int64_t, std::int64_t> bytes;
  run_on_threads(1, [&](const ProcessGroup& group) {
    torch::manual_seed(1);
    const recipe::ModelConfig config{.name = "gpt",
                                     .dropout = 0.1,
                                     .width = 8,
                                     .layers = 2,
                                     .heads = 2,
                                     .context = 4,
                                     .checkpoints = 1};
    DataParallel model(
        recipe::make_model(config),
        {.process_group = group, .optimizer = [](std::vector<torch::Tensor> parameters) {
           return std::make_unique<torch::optim::Adam>(std::move(parameters));
         }});
    const auto inputs = torch::arange(8).view({2, 4});
    for (int i = 0; i < steps; ++i) {
      torch::nll_loss_nd(model(inputs), inputs).backward();
      model.step();
    }
    bytes = {total_bytes(tracker.ledger().bytes()), tracker.ledger().peak().bytes};
    EXPECT_GT(tracker.ledger().next_serial(), 100u * static_cast<unsigned>(steps))
        << "none counted";
  });
  EXPECT_GT(bytes.first, 0);
  EXPECT_GT(bytes.second, bytes.first);
  return bytes;
}

TEST(MemoryOfTraining, DoesNotGrowOverAThousandSteps) {
  EXPECT_EQ(after_steps(50), after_steps(1000));
}

}  // namespace
}  // namespace gradwire::test
