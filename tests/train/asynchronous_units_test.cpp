#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/servers/served_exchange.h"
#include "gradwire/train/optim/layerwise.h"
#include "gradwire/train/servers/served.h"
#include "gradwire/train/servers/served_local_steps.h"
#include "tests/support/torch/thread_group.h"
#include "tests/train/small_models.h"
#include "tests/train/zero_model.h"

/// ServersOptions::units.
namespace gradwire::test {
namespace {

using testing::HasSubstr;

constexpr int kUnitSteps = 40;

ServersOptions with_units(std::vector<std::string> units) {
  return {.count = 2, .units = std::move(units)};
}

TEST(AsynchronousUnits, AreStaleBesideSynchronousOnes) {
  constexpr int kWorkers = 3;
  std::vector<Values> all(kWorkers);
  run_on_threads(kWorkers, [&](const ProcessGroup& group) {
    ZeroNet net;
    initialise(*net, 1);
    Served model(net, {.process_group = group,
                       .servers = with_units({"first", "head.weight"}),
                       .optimizer = make_sgd,
                       .bucket_cap_mb = 0.001});
    train_on_tasks(model, kUnitSteps, 1, [&] { model.step(); });
    model.synchronize();
    const auto report = model.report();
    const servers::ServerPolicy& policy = model.core().exchange().policy();
    servers::Staleness asynchronous;
    std::size_t units = 0;
    for (std::size_t unit = 0; unit < report.by_unit.size(); ++unit) {
      if (policy.mode_of(unit) == servers::Mode::async) {
        asynchronous.add(report.by_unit[unit]);
        ++units;
      } else {
        EXPECT_EQ(report.by_unit[unit].max(), 0);
      }
    }
    EXPECT_GE(units, 1U);
    EXPECT_LT(units, report.by_unit.size());
    // A worker pushes once a step, and reads in between what the others have made.
    EXPECT_NEAR(asynchronous.mean(), kWorkers - 1, 0.2);
    all[static_cast<std::size_t>(group->getRank())] = values_of(*model.module());
  });
  for (const Values& values : all) EXPECT_EQ(difference(values, all[0]), 0);
}

Values trained_with_units(int workers, const ServersOptions& servers, double rate = 1) {
  Values values;
  run_on_threads(workers, [&](const ProcessGroup& group) {
    ZeroNet net;
    initialise(*net, 1);
    Served model(net, {.process_group = group, .servers = servers, .optimizer = make_sgd});
    model.set_rate(rate);
    train_on_tasks(model, kUnitSteps, 1, [&] { model.step(); });
    model.synchronize();
    if (group->getRank() == 0) values = values_of(*model.module());
  });
  return values;
}

TEST(AsynchronousUnits, OfOneWorkerAreSynchronous) {
  const Values expected = trained_with_units(1, {});
  EXPECT_EQ(difference(trained_with_units(1, {.units = {"first", "t*"}}), expected), 0);
}

/// With rate 0 they do not move, and others do.
TEST(AsynchronousUnits, HaveARateOfTheirOwn) {
  const Values before = trained_with_units(1, {}, 0);
  Values frozen = trained_with_units(2, {.units = {"first"}, .units_rate = 0});
  EXPECT_TRUE(frozen.at("first.weight").equal(before.at("first.weight")));
  EXPECT_FALSE(frozen.at("head.weight").equal(before.at("head.weight")));
}

std::string refusal_of_units(const ServedOptions& options) {
  return errors_on_threads(2, [&](const ProcessGroup& group) {
    ServedOptions given = options;
    given.process_group = group;
    Served model(ZeroNet(), given);
  })[0];
}

TEST(AsynchronousUnits, AreRefusedWhereNoneIsSynchronous) {
  EXPECT_THAT(refusal_of_units({.servers = with_units({"heed"}), .optimizer = make_sgd}),
              HasSubstr("\"heed\" names no parameter; the model has scale, first.weight, "));
  EXPECT_THAT(
      refusal_of_units({.servers = {.mode = "async", .units = {"head"}}, .optimizer = make_sgd}),
      HasSubstr("with mode async and use 1 none is synchronous"));
  EXPECT_THAT(refusal_of_units(
                  {.servers = with_units({"head"}), .optimizer = make_sgd, .max_grad_norm = 1}),
              HasSubstr("each gradient of the asynchronous units is a step alone"));
  EXPECT_THAT(refusal_of_units({.servers = with_units({"head"}),
                                .optimizer = [](const std::vector<NamedTensor>& parameters)
                                    -> std::unique_ptr<torch::optim::Optimizer> {
                                  std::vector<torch::Tensor> tensors;
                                  for (const auto& each : parameters)
                                    tensors.push_back(each.tensor);
                                  return std::make_unique<Lamb>(tensors, LambOptions(0.01));
                                }}),
              HasSubstr("Lars, Lamb and RangerLars need norms"));
  const auto local = errors_on_threads(1, [](const ProcessGroup& group) {
    ZeroNet net;
    ServedLocalSteps steps(trainable_parameters(*net),
                           {.process_group = group, .servers = {.units = {"head"}}}, {.steps = 2});
  })[0];
  EXPECT_THAT(local, HasSubstr("units are of gradients"));
}

}  // namespace
}  // namespace gradwire::test
