#include "gradwire/recipe/evaluate.h"

#include <mutex>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/data/sampler.h"
#include "tests/support/torch/thread_group.h"

namespace gradwire::test {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::Ge;
using ::testing::Le;
using ::testing::SizeIs;

constexpr std::int64_t kSamples = 37;
constexpr std::int64_t kBatch = 2;  // Per rank.

/// Sample i is the number i, with class i % 2.
DataSet numbers() {
  return {.size = kSamples, .batch = [](const SampledBatch& sampled) {
            const auto indexes = torch::tensor(sampled.samples, torch::kLong);
            return Batch{indexes.to(torch::kFloat).unsqueeze(1), indexes.remainder(2)};
          }};
}

/// Predicts with certainty that every number is even.
torch::Tensor all_even(const torch::Tensor& inputs) {
  const auto even = torch::zeros({inputs.size(0), 1});
  return torch::cat({even, even - 1}, 1);
}

/// Batch sizes that a rank is given.
using Given = std::vector<std::int64_t>;

TEST(Evaluate, EveryRankRunsTheModelEquallyOftenOnNoMoreThanItsPartOfABatch) {
  constexpr int kRanks = 4;
  std::mutex mutex;
  std::vector<Given> given;
  run_on_threads(kRanks, [&](const auto& group) {
    torch::nn::Sequential module(torch::nn::Identity{});
    Given own;
    const recipe::Evaluation found = recipe::evaluate({module.ptr()},
                                                      [&](const torch::Tensor& inputs) {
                                                        EXPECT_FALSE(module->is_training());
                                                        EXPECT_FALSE(torch::GradMode::is_enabled());
                                                        own.push_back(inputs.size(0));
                                                        return all_even(inputs);
                                                      },
                                                      numbers(), kBatch, {*group, *group});
    EXPECT_TRUE(module->is_training());
    EXPECT_EQ(found.images, kSamples);
    EXPECT_DOUBLE_EQ(found.accuracy, 19.0 / kSamples);
    EXPECT_NEAR(found.loss, 18.0 / kSamples, 1e-6);
    const std::lock_guard lock(mutex);
    given.push_back(own);
  });
  // Five batches of two samples per rank; of the last batch, with five samples, one rank has none.
  EXPECT_THAT(given, AllOf(SizeIs(kRanks), Each(SizeIs(5)), Each(Each(AllOf(Ge(1), Le(kBatch))))));
}

}  // namespace
}  // namespace gradwire::test
