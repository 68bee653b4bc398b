#include <algorithm>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "gradwire/base/error.h"
#include "gradwire/plan/simulate/step_simulation.h"
#include "gradwire/workload/profiles.h"

namespace gradwire::plan {
namespace {

constexpr double kMs = 1e-3;

/// A layer that computes and sends for whole milliseconds.
struct Layer {
  int forward = 0, backward = 0, network = 0;
};

/// Each layer has one tensor of `network` values, sent in its own bucket.
workload::LayerProfile profile_of(const std::vector<Layer>& layers) {
  workload::LayerProfile profile{.name = "drawn"};
  for (const Layer& layer : layers) {
    profile.layers.push_back({.name = "layer",
                              .parameters = {{"weight", {layer.network, 1}}},
                              .forward = static_cast<double>(layer.forward),
                              .backward = static_cast<double>(layer.backward)});
  }
  workload::normalize_shares(profile);
  return profile;
}

double compute_ms(const std::vector<Layer>& layers) {
  double sum = 0;
  for (const Layer& layer : layers) sum += layer.forward + layer.backward;
  return sum;
}

/// A network on which a value takes a millisecond, port included.
ExchangeModel millisecond_a_value() {
  ExchangeModel exchange{.ranks = 4};
  exchange.times = [](schedule::Collective, double bytes) {
    const double seconds = bytes / sizeof(float) * kMs;
    return OperationTime{seconds, seconds, "ring"};
  };
  return exchange;
}

step::StepPlan one_bucket_a_layer(const workload::LayerProfile& profile) {
  return step::plan_step(profile, {.limits = {.first_bytes = 1, .bytes = 1, .last_bytes = 1}});
}

SimulatedStep simulated(const std::vector<Layer>& layers, step::Overlap overlap) {
  const workload::LayerProfile profile = profile_of(layers);
  const StepModel model{.compute = compute_ms(layers) * kMs, .policy = {.overlap = overlap}};
  return simulate_step(profile, one_bucket_a_layer(profile), model, millisecond_a_value());
}

/// An independent simulation in steps of one millisecond: compute advances by one, and the network
/// sends one of the bucket with the highest priority.
class Ticks {
 public:
  Ticks(const std::vector<Layer>& layers, step::Overlap overlap)
      : layers_(layers), overlap_(overlap), left_(layers.size()) {}

  int step() {
    const int begin = now_;
    for (std::size_t l = 0; l < layers_.size(); ++l) {
      await(l);
      pass(layers_[l].forward);
    }
    for (std::size_t l = layers_.size(); l-- > 0;) {
      pass(layers_[l].backward);
      if (overlap_ != step::Overlap::none) left_[l] = layers_[l].network;
    }
    for (std::size_t l = 0; l < layers_.size(); ++l) {
      if (overlap_ == step::Overlap::none) left_[l] = layers_[l].network;
    }
    for (std::size_t l = 0; overlap_ != step::Overlap::full && l < layers_.size(); ++l) await(l);
    return now_ - begin;
  }

 private:
  void pass(int ms) {
    for (; ms > 0; --ms, ++now_) {
      // The first layer of forward has the highest priority.
      const auto sent = std::ranges::find_if(left_, [](int left) { return left > 0; });
      if (sent != left_.end()) --*sent;
    }
  }
  void await(std::size_t layer) {
    while (left_[layer] > 0) pass(1);
  }

  const std::vector<Layer>& layers_;
  step::Overlap overlap_;
  std::vector<int> left_;
  int now_ = 0;
};

RC_GTEST_PROP(SimulateStep, IsWhatMillisecondAfterMillisecondGives, ()) {
  const auto between = [](int low, int high) { return *rc::gen::inRange(low, high + 1); };
  std::vector<Layer> layers;
  const int count = between(1, 6);
  for (int i = 0; i < count; ++i) layers.push_back({between(0, 9), between(1, 9), between(1, 20)});
  for (const step::Overlap overlap :
       {step::Overlap::none, step::Overlap::backward, step::Overlap::full}) {
    Ticks ticks(layers, overlap);
    int last = 0;
    for (int i = 0; i < 4; ++i) last = ticks.step();
    const SimulatedStep step = simulated(layers, overlap);
    RC_ASSERT(std::abs(step.step - last * kMs) < 1e-7);
    RC_ASSERT(std::abs(step.exposed - (last - compute_ms(layers)) * kMs) < 1e-7);
  }
}

TEST(SimulateStep, WithoutOverlapTimesAddUp) {
  const SimulatedStep step = simulated({{10, 20, 30}, {1, 2, 3}}, step::Overlap::none);
  EXPECT_NEAR(step.step, (33 + 33) * kMs, 1e-12);
  EXPECT_NEAR(step.efficiency(), 0.5, 1e-9);
}

TEST(SimulateStep, FullOverlapComesToTheBound) {
  // ResNet-50 at 10 GbE: T_c is 172 ms of 234. At 1 GbE the network bounds the step.
  const workload::LayerProfile profile = workload::profile_named("resnet50");
  Fabric fabric{.hosts = 4};
  fabric.port = {.latency = std::chrono::microseconds(20), .bytes_per_second = 1.17e9};
  ExchangeModel exchange{.ranks = 4, .times = fabric_times(fabric, "ring")};
  const StepModel model{.compute = 0.234};
  EXPECT_GT(simulate_step(profile, step::plan_step(profile), model, exchange).efficiency(), 0.99);
  fabric.port.bytes_per_second = 1.17e8;
  exchange.times = fabric_times(fabric, "ring");
  const double t_c = 2 * 0.75 * 4 * 25'557'032 / 1.17e8;
  EXPECT_NEAR(simulate_step(profile, step::plan_step(profile), model, exchange).step, t_c,
              0.03 * t_c);
}

TEST(SimulateStep, ASlowHostSlowsAllDown) {
  const workload::LayerProfile profile = profile_of({{10, 20, 5}});
  const StepModel model{.compute = 30 * kMs, .slowest_host = 2};
  const SimulatedStep step =
      simulate_step(profile, one_bucket_a_layer(profile), model, millisecond_a_value());
  EXPECT_NEAR(step.step, (60 + 5) * kMs, 1e-9);
  EXPECT_NEAR(step.exposed, (30 + 5) * kMs, 1e-9);
}

TEST(SimulateStep, PassesAndLocalStepsSendLess) {
  const std::vector<Layer> layers{{10, 20, 100}};
  const workload::LayerProfile profile = profile_of(layers);
  StepModel model{.compute = 30 * kMs, .accumulate = 4, .policy = {.overlap = step::Overlap::none}};
  const auto step = [&](const StepModel& m) {
    return simulate_step(profile, one_bucket_a_layer(profile), m, millisecond_a_value()).step;
  };
  EXPECT_NEAR(step(model), (4 * 30 + 100) * kMs, 1e-9);
  model = {.compute = 30 * kMs};
  step::LocalStepsConfig local{.steps = 4};
  model.local_steps.emplace(local);
  EXPECT_NEAR(step(model), (30 + 100 / 4.0) * kMs, 1e-9);
  local.overlap_steps = 2;
  model.local_steps.emplace(local);
  EXPECT_NEAR(step(model), (30 + (100 - 2 * 30) / 4.0) * kMs, 1e-9);
}

TEST(SimulateStep, CodingTakesItsThreadAndSparesTheNetwork) {
  const workload::LayerProfile profile = profile_of({{10, 20, 1 << 20}});
  const StepModel model{.compute = 0.1, .policy = {.overlap = step::Overlap::none}};
  ExchangeModel exchange{.ranks = 2, .codec = "int8", .speed = {1e9, 1e9, 1e9}};
  double sent = 0;
  exchange.times = [&](schedule::Collective, double bytes) {
    sent += bytes;
    return OperationTime{1e-3, 1e-3, "direct"};
  };
  const SimulatedStep step =
      simulate_step(profile, step::plan_step(profile, {.compress = true}), model, exchange);
  // Encode all; decode one half, add the other, encode the mean's half; decode all.
  const double coding = (1 + 0.5 + 0.5 + 0.5 + 1) * 4 * (1 << 20) / 1e9;
  EXPECT_NEAR(step.step, 0.1 + coding + 2e-3, 1e-6);
  EXPECT_LT(sent, 2.2 * (1 << 20));
  exchange.codec_slowdown = 2;
  EXPECT_NEAR(
      simulate_step(profile, step::plan_step(profile, {.compress = true}), model, exchange).step,
      0.1 + 2 * coding + 2e-3, 1e-6);
}

TEST(SimulateStep, ReadsWhatBenchCodecWrote) {
  const auto speeds = parse_codec_speeds(
      R"({"rows": [{"codec": "int8", "bytes": 4, "encoded_bytes": 1, "ratio": 4,
          "relative_error": 0.1, "encode_gbps": 2, "encode_plain_gbps": 3, "decode_gbps": 4,
          "decode_add_gbps": 5}]})",
      "codecs.json");
  ASSERT_TRUE(speeds.contains("int8"));
  EXPECT_EQ(speeds.at("int8").decode_add, 5e9);
  EXPECT_THROW(parse_codec_speeds(R"({"rows": [{"codec": "int8"}]})", "codecs.json"), Exception);
}

}  // namespace
}  // namespace gradwire::plan
