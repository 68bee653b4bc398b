#include "gradwire/train/servers/served.h"

#include <atomic>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/train/data_parallel/data_parallel.h"
#include "gradwire/train/optim/layerwise.h"
#include "tests/support/torch/loopback.h"
#include "tests/support/torch/thread_group.h"
#include "tests/train/small_models.h"
#include "tests/train/zero_model.h"

/// Servers beside workers, as threads of this process over real sockets.
namespace gradwire::test {
namespace {

using testing::HasSubstr;

constexpr int kSteps = 50;

Values trained_by_averages(int ranks, const OptimizerFactory& optimizer) {
  Values values;
  run_on_loopback(
      ranks,
      [&](const ProcessGroup& group) {
        torch::set_num_threads(1);  // The same additions as in run_on_threads().
        ZeroNet net;
        initialise(*net, static_cast<std::uint64_t>(group->getRank()));
        DataParallel model(
            net, {.process_group = group, .find_unused_parameters = true, .optimizer = optimizer});
        train_on_tasks(model, kSteps, 1, [&] { model.step(); });
        model.finish();
        if (group->getRank() == 0) values = values_of(*net);
      },
      {.algorithm = "all_reduce=exchange"});
  return values;
}

struct Setting {
  std::string name;
  int workers, servers;
  OptimizerFactory optimizer;
  Overlap overlap = Overlap::full;
  bool in_backward = false;  ///< Steps in backward.
};

class ServedEquals : public testing::TestWithParam<Setting> {};
INSTANTIATE_TEST_SUITE_P(
    DataParallel, ServedEquals,
    testing::Values(Setting{"OneServer", 4, 1, make_sgd}, Setting{"TwoServers", 4, 2, make_sgd},
                    Setting{"ServersOnAll", 4, 0, make_sgd}, Setting{"Adam", 4, 2, make_adam},
                    Setting{"OneWorker", 1, 0, make_adam},
                    Setting{"NoOverlap", 2, 1, make_sgd, Overlap::none},
                    Setting{"BackwardAlone", 2, 2, make_sgd, Overlap::backward},
                    Setting{"InBackward", 3, 2, make_adam, Overlap::full, true}),
    [](const auto& given) { return given.param.name; });

void PrintTo(const Setting& setting, std::ostream* out) {
  *out << setting.name;
}

TEST_P(ServedEquals, BitForBitInModeSync) {
  const Setting& setting = GetParam();
  const Values expected = trained_by_averages(setting.workers, setting.optimizer);
  run_on_threads(setting.workers, [&](const ProcessGroup& group) {
    ZeroNet net;
    initialise(*net, static_cast<std::uint64_t>(group->getRank()));
    Served model(net, {.process_group = group,
                       .servers = {.count = setting.servers},
                       .optimizer = setting.optimizer,
                       .bucket_cap_mb = 0.001,
                       .overlap = setting.overlap});
    train_on_tasks(
        model, kSteps, 1,
        [&] {
          if (!setting.in_backward) model.step();
        },
        [&] {
          if (setting.in_backward) model.step_in_backward();
        });
    const auto report = model.report();
    EXPECT_EQ(difference(values_of(*model.module()), expected), 0);
    EXPECT_EQ(report.staleness().max(), 0);
  });
}

TEST(Served, AccumulatesUnderNoSync) {
  const Values expected = [] {
    Values values;
    run_on_threads(2, [&](const ProcessGroup& group) {
      ZeroNet net;
      initialise(*net, 1);
      Zero model(net, {.process_group = group, .stage = 1, .optimizer = make_sgd});
      train_on_tasks(model, 10, 2, [&] { model.step(); });
      model.finish();
      if (group->getRank() == 0) values = values_of(*net);
    });
    return values;
  }();
  run_on_threads(2, [&](const ProcessGroup& group) {
    ZeroNet net;
    initialise(*net, 1);
    Served model(net, {.process_group = group, .servers = {.count = 1}, .optimizer = make_sgd});
    train_on_tasks(model, 10, 2, [&] { model.step(); });
    EXPECT_EQ(difference(values_of(*model.module()), expected), 0);
  });
}

TEST(Served, EachGradientIsAStepInModeAsync) {
  run_on_threads(3, [&](const ProcessGroup& group) {
    ZeroNet net;
    initialise(*net, 1);
    const Values before = values_of(*net);
    Served model(net, {.process_group = group,
                       .servers = {.count = 2, .mode = "async", .rate = "inverse"},
                       .optimizer = make_sgd});
    train_on_tasks(model, kSteps, 1, [&] { model.step(); });
    EXPECT_GT(difference(values_of(*model.module()), before), 0);
    sum_over_ranks(*group, {1});
    const auto report = model.report();
    const auto units = static_cast<std::int64_t>(report.by_unit.size());
    EXPECT_EQ(report.updates(), 2 * units * 3 * kSteps);
    EXPECT_LE(report.mean_factor, 1);
  });
}

TEST(Served, StepsAtTheGivenRate) {
  Values changes[2];
  for (const bool half : {false, true}) {
    run_on_threads(1, [&](const ProcessGroup& group) {
      ZeroNet net;
      initialise(*net, 1);
      const Values before = values_of(*net);
      const auto sgd = [](std::vector<torch::Tensor> parameters) {
        return std::make_unique<torch::optim::SGD>(std::move(parameters),
                                                   torch::optim::SGDOptions(0.25));
      };
      Served model(net, {.process_group = group, .optimizer = sgd});
      if (half) model.set_rate(0.5);
      train_on_tasks(model, 1, 1, [&] { model.step(); });
      Values& change = changes[half ? 1 : 0] = values_of(*model.module());
      for (auto& [name, value] : change) value -= before.at(name);
    });
  }
  for (auto& [name, value] : changes[1]) value *= 2;
  EXPECT_LT(difference(changes[0], changes[1]), 1e-6);
}

TEST(Served, SynchronizingChangesNothingInModeSync) {
  Values values[2];
  for (const bool synchronizes : {false, true}) {
    run_on_threads(2, [&](const ProcessGroup& group) {
      ZeroNet net;
      initialise(*net, 1);
      Served model(net, {.process_group = group, .optimizer = make_sgd});
      for (int part = 0; part < 3; ++part) {
        train_on_tasks(model, 4, 1, [&] { model.step(); });
        if (synchronizes) model.synchronize();
      }
      if (group->getRank() == 0) values[synchronizes ? 1 : 0] = values_of(*model.module());
    });
  }
  EXPECT_EQ(difference(values[0], values[1]), 0);
}

TEST(Served, DealsEachSampleOnce) {
  constexpr int kSamples = 100, kEpochs = 2;
  std::vector<std::atomic<int>> used(kSamples * kEpochs);
  run_on_threads(3, [&](const ProcessGroup& group) {
    ZeroNet net;
    initialise(*net, 1);
    Served model(net, {.process_group = group,
                       .servers = {.count = 2, .mode = "async"},
                       .optimizer = make_sgd,
                       .samples = kSamples,
                       .epochs = kEpochs});
    for (;;) {
      const servers::Deal batch = model.take(7);
      if (batch.count == 0) break;
      for (std::int64_t i = 0; i < batch.count; ++i) {
        ++used[static_cast<std::size_t>(batch.epoch * kSamples + batch.begin + i)];
      }
      train_on_tasks(model, 1, 1, [&] { model.step(); });
    }
  });
  EXPECT_THAT(used, testing::Each(testing::Eq(1)));
}

std::string error_with(const ServedOptions& options) {
  return errors_on_threads(1, [&](const ProcessGroup& group) {
    ServedOptions given = options;
    if (!given.process_group) given.process_group = group;
    Served model(ZeroNet(), given);
  })[0];
}

TEST(Served, RefusesWhatServersCannotDo) {
  const auto lars = [](std::vector<torch::Tensor> parameters) {
    return std::make_unique<Lars>(std::move(parameters), LarsOptions(0.1));
  };
  EXPECT_THAT(error_with({}), HasSubstr("no optimizer"));
  EXPECT_THAT(error_with({.optimizer = lars}), HasSubstr("Lars and Lamb need the norms"));
  EXPECT_THAT(error_with({.servers = {.mode = "asynch"}, .optimizer = make_sgd}),
              HasSubstr("mode"));
  EXPECT_THAT(error_with({.servers = {.use = 0.5}, .optimizer = make_sgd}),
              HasSubstr("it takes at least 2 workers"));
  EXPECT_THAT(error_with({.servers = {.count = 2}, .optimizer = make_sgd}),
              HasSubstr("2 servers beside 1 workers"));
  EXPECT_THAT(error_with({.servers = {.groups = 1}, .optimizer = make_sgd}),
              HasSubstr("in mode sync all workers are one group"));
  EXPECT_THAT(error_with({.servers = {.mode = "async", .groups = 2}, .optimizer = make_sgd}),
              HasSubstr("groups: 2 of 1 workers"));
  EXPECT_THAT(error_with({.servers = {.pull_every = 2}, .optimizer = make_sgd}),
              HasSubstr("pull_every 2"));
  EXPECT_THAT(error_with({.servers = {.mode = "async", .rate = "halved"}, .optimizer = make_sgd}),
              HasSubstr("rate"));
}

TEST(Served, AWorkerThatFailsEndsItsServerToo) {
  const auto errors = errors_on_threads(2, [&](const ProcessGroup& group) {
    ZeroNet net;
    Served model(net, {.process_group = group, .optimizer = make_sgd});
    if (group->getRank() == 1) throw std::runtime_error("failed in a test");
    train_on_tasks(model, kSteps, 1, [&] { model.step(); });
  });
  EXPECT_THAT(errors[1], HasSubstr("failed in a test"));
  EXPECT_NE(errors[0], "");
}

}  // namespace
}  // namespace gradwire::test
