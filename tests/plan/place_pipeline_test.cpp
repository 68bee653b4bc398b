#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "gradwire/plan/place/pipeline_placement.h"

namespace gradwire::plan {
namespace {

PipelineProblem uniform(std::size_t layers, int devices) {
  PipelineProblem problem{.layers = {}, .devices = devices, .bytes_per_second = 1e9};
  problem.layers.assign(layers, {.seconds = 0.01, .output_bytes = 1e3, .weight_bytes = 1e3});
  return problem;
}

/// Tries every way to cut layers into stages with replicas, with an independent implementation of
/// the paper's formulas. Returns the slowest part of the best.
double exhaustive(const PipelineProblem& p) {
  double best = std::numeric_limits<double>::infinity();
  struct Part {
    std::size_t begin, end;
    int replicas;
  };
  std::vector<Part> parts;
  const auto slowest = [&] {
    double worst = 0;
    int from_here = 0;
    for (std::size_t s = parts.size(); s-- > 0;) {
      const Part& part = parts[s];
      from_here += part.replicas;
      double time = 0, weights = 0, kept = 0;
      for (std::size_t l = part.begin; l < part.end; ++l) {
        time += p.layers[l].seconds;
        weights += p.layers[l].weight_bytes;
        kept += p.layers[l].kept_bytes;
      }
      const int m = part.replicas, flying = (from_here + m - 1) / m;
      const double memory =
          kept * flying + weights * p.states_per_weight + weights * (p.stash_weights ? flying : 1);
      if (p.memory_bytes > 0 && memory > p.memory_bytes)
        return std::numeric_limits<double>::infinity();
      worst = std::max({worst, time / m, 2.0 * (m - 1) * weights / p.bytes_per_second / m});
      if (s + 1 < parts.size())
        worst = std::max(worst, 2 * p.layers[part.end - 1].output_bytes / p.bytes_per_second);
    }
    return worst;
  };
  const std::function<void(std::size_t, int)> extend = [&](std::size_t begin, int left) {
    if (begin == p.layers.size()) {
      best = std::min(best, slowest());
      return;
    }
    for (std::size_t end = begin + 1; end <= p.layers.size(); ++end) {
      for (int replicas = 1; replicas <= (p.replicate ? left : std::min(left, 1)); ++replicas) {
        parts.push_back({begin, end, replicas});
        extend(end, left - replicas);
        parts.pop_back();
      }
    }
  };
  extend(0, p.devices);
  return best;
}

PipelineProblem drawn() {
  const auto between = [](int low, int high) { return *rc::gen::inRange(low, high + 1); };
  PipelineProblem problem{.layers = {}, .devices = between(1, 5)};
  problem.bytes_per_second = 1e6 * between(1, 1000);
  problem.stash_weights = between(0, 1) == 1;
  problem.replicate = between(0, 2) > 0;
  const int layers = between(1, 7);
  for (int i = 0; i < layers; ++i) {
    problem.layers.push_back({.seconds = 1e-3 * between(0, 100),
                              .output_bytes = 1e4 * between(0, 100),
                              .weight_bytes = 1e4 * between(0, 300),
                              .kept_bytes = 1e4 * between(0, 300)});
  }
  if (between(0, 1) == 1) problem.memory_bytes = 1e5 * between(1, 400);
  return problem;
}

RC_GTEST_PROP(PlacePipeline, IsAsGoodAsTheBestOfAll, ()) {
  const PipelineProblem problem = drawn();
  const double best = exhaustive(problem);
  const auto found = place_pipeline(problem);
  RC_ASSERT(found.has_value() == std::isfinite(best));
  if (found) RC_ASSERT(std::abs(found->bottleneck - best) <= 1e-12 + 1e-9 * best);
}

RC_GTEST_PROP(PlacePipeline, PlacesEveryLayerOnceAndKeepsToTheLimits, ()) {
  const PipelineProblem problem = drawn();
  const auto found = place_pipeline(problem);
  if (!found) return;
  std::size_t next = 0;
  int devices = 0;
  double slowest = 0;
  for (const PipelineStage& stage : found->stages) {
    RC_ASSERT(stage.begin == next);
    RC_ASSERT(stage.end > stage.begin);
    next = stage.end;
    devices += stage.replicas;
    slowest = std::max(slowest, stage.seconds);
    if (problem.memory_bytes > 0) RC_ASSERT(stage.memory_bytes <= problem.memory_bytes);
  }
  RC_ASSERT(next == problem.layers.size());
  RC_ASSERT(devices <= problem.devices);
  RC_ASSERT(found->bottleneck >= slowest);
}

TEST(PlacePipeline, DividesEqualLayersEqually) {
  PipelineProblem problem = uniform(12, 4);
  problem.replicate = false;
  const auto found = place_pipeline(problem);
  ASSERT_TRUE(found);
  ASSERT_EQ(found->stages.size(), 4u);
  for (const PipelineStage& stage : found->stages) EXPECT_EQ(stage.end - stage.begin, 3u);
  EXPECT_NEAR(found->bottleneck, 0.03, 1e-12);
  // GPipe's bubble: (M + S - 1) times a stage.
  EXPECT_NEAR(pipeline_seconds(problem, *found, 8), (8 + 3) * 0.03, 1e-4);
}

/// Few weights and large activations favor data parallelism; many weights and small activations
/// favor a pipeline (PipeDream, section 5.2: ResNet-50 compared with VGG-16's last layers).
TEST(PlacePipeline, ReplicatesWhatHasFewWeights) {
  PipelineProblem problem{.layers = {}, .devices = 4, .bytes_per_second = 1e9};
  problem.layers.assign(8, {.seconds = 0.01, .output_bytes = 2e8, .weight_bytes = 1e5});
  const auto data_parallel = place_pipeline(problem);
  ASSERT_TRUE(data_parallel);
  ASSERT_EQ(data_parallel->stages.size(), 1u);
  EXPECT_EQ(data_parallel->stages[0].replicas, 4);

  problem.layers.assign(8, {.seconds = 0.01, .output_bytes = 1e4, .weight_bytes = 2e7});
  const auto pipeline = place_pipeline(problem);
  ASSERT_TRUE(pipeline);
  EXPECT_EQ(pipeline->stages.size(), 4u);
}

/// Convolutions are replicated, and the layers with most weights are not, as in PipeDream's table 1
/// for VGG-16 (15-1).
TEST(PlacePipeline, VggIsReplicatedConvolutionsBeforeUnreplicatedWeights) {
  PipelineProblem problem{.layers = {}, .devices = 16, .bytes_per_second = 1.2e9};
  for (int i = 0; i < 13; ++i)
    problem.layers.push_back({.seconds = 0.03, .output_bytes = 4e6, .weight_bytes = 4.5e6});
  for (const double weights : {411e6, 67e6, 16e6})
    problem.layers.push_back({.seconds = 0.003, .output_bytes = 1e6, .weight_bytes = weights});
  const auto found = place_pipeline(problem);
  ASSERT_TRUE(found);
  int for_convolutions = 0;
  for (const PipelineStage& stage : found->stages) {
    if (stage.end <= 13) for_convolutions += stage.replicas;
    if (stage.begin <= 13 && stage.end > 13) {
      EXPECT_EQ(stage.replicas, 1);
    }
  }
  EXPECT_GE(for_convolutions, 12);
}

TEST(PlacePipeline, MemoryForcesMoreStagesAndMayRefuse) {
  PipelineProblem problem = uniform(8, 4);
  for (PipelineLayer& layer : problem.layers) layer.weight_bytes = 1e9;
  problem.memory_bytes = 9e9;  // Two layers of weights, gradients and states.
  const auto found = place_pipeline(problem);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->stages.size(), 4u);
  problem.memory_bytes = 7e9;
  EXPECT_FALSE(place_pipeline(problem));
}

}  // namespace
}  // namespace gradwire::plan
