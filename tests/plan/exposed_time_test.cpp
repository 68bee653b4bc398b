#include "gradwire/plan/predict/exposed_time.h"

#include <algorithm>

#include <gtest/gtest.h>

namespace gradwire::plan {
namespace {

/// Equal layers, each with the same parameters and time.
ModelShape even(int layers) {
  ModelShape model{.name = "even"};
  for (int i = 0; i < layers; ++i)
    model.layers.push_back({.name = "layer", .parameters = 1000, .flops = 1});
  set_shares(model);
  return model;
}

double exposed(const ModelShape& model, step::Overlap overlap, double communication,
               double latency = 0) {
  return exposed_time(model, {.policy = {.overlap = overlap},
                              .forward = 1,
                              .backward = 2,
                              .reduce = {communication, latency, latency}});
}

TEST(Exposed, OverlapNoneExposesEverything) {
  EXPECT_DOUBLE_EQ(exposed(even(10), step::Overlap::none, 0.5, 0.25), 0.75);
}

TEST(Exposed, SlowNetworkExposesAllThatEndsAfterBackward) {
  // Ten buckets of 1 s; the first is sent after 0.2 s, and then the link is never idle.
  EXPECT_NEAR(exposed(even(10), step::Overlap::backward, 10), 0.2 + 10 - 2, 1e-12);
}

TEST(Exposed, FastNetworkExposesTheLastBucket) {
  EXPECT_NEAR(exposed(even(10), step::Overlap::backward, 1), 0.1, 1e-12);
  EXPECT_NEAR(exposed(even(10), step::Overlap::backward, 1, 0.03), 0.13, 1e-12);
  // Its layer is also the first of forward.
  EXPECT_NEAR(exposed(even(10), step::Overlap::full, 1), 0.1, 1e-12);
}

TEST(Exposed, WithFullIsNearTheBound) {
  // T_c = 4 s, forward and backward 3 s.
  const double waits = exposed(even(48), step::Overlap::full, 4);
  EXPECT_GE(waits, 1);
  EXPECT_LE(waits, 1.25);
}

TEST(Exposed, MoreOverlapNeverExposesMore) {
  for (const char* name : {"resnet50", "gpt2", "vgg16", "llama2_7b"}) {
    const ModelShape model = model_named(name);
    for (const double communication : {0.01, 0.5, 1.0, 2.0, 3.0, 8.0}) {
      const double none = exposed(model, step::Overlap::none, communication);
      const double backward = exposed(model, step::Overlap::backward, communication);
      const double full = exposed(model, step::Overlap::full, communication);
      EXPECT_LE(backward, none + 1e-12) << name;
      EXPECT_LE(full, backward + 1e-12) << name << communication;
      EXPECT_GE(full, std::max(0.0, communication - 3) - 1e-12) << name;
    }
  }
}

TEST(Exposed, TheLastCompleteGradientIsExposed) {
  // GPT-2's output uses the embedding's weight, 31 % of its parameters.
  const double waits = exposed(model_named("gpt2"), step::Overlap::full, 1);
  EXPECT_NEAR(waits, 39'383'808.0 / 124'439'808, 0.02);
}

}  // namespace
}  // namespace gradwire::plan
