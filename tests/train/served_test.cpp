#include "gradwire/train/servers/served.h"

#include <atomic>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/train/data_parallel/data_parallel.h"
#include "gradwire/train/optim/layerwise.h"
#include "gradwire/train/servers/served_local_steps.h"
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
  EXPECT_THAT(error_with({}), HasSubstr("no optimizer"));
  EXPECT_THAT(error_with({.servers = {.mode = "asynch"}, .optimizer = make_sgd}),
              HasSubstr("mode"));
  EXPECT_THAT(error_with({.servers = {.use = 0.5}, .optimizer = make_sgd}),
              HasSubstr("it takes at least 2 workers"));
  EXPECT_THAT(error_with({.servers = {.count = 2}, .optimizer = make_sgd}),
              HasSubstr("2 servers beside 1 workers"));
  EXPECT_THAT(error_with({.servers = {.mode = "async", .keeps_order = true},
                          .optimizer = make_sgd,
                          .codec = "int8"}),
              HasSubstr("keeps_order excludes groups and codecs"));
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

// Optimizers that take norms over all servers.

constexpr int kNormSteps = 50;

OptimizerFactory make_lars() {
  auto options = LarsOptions(1);
  options.weight_decay(1e-3).trust_coefficient(0.02);
  return [options](std::vector<torch::Tensor> parameters) {
    return std::make_unique<Lars>(std::move(parameters), options);
  };
}

OptimizerFactory make_lamb() {
  auto options = LambOptions(0.01);
  options.weight_decay(1e-3);
  return [options](std::vector<torch::Tensor> parameters) {
    return std::make_unique<Lamb>(std::move(parameters), options);
  };
}

struct NormSetting {
  std::string name;
  OptimizerFactory optimizer;
  double max_norm = 0;
  bool in_backward = false;  ///< Steps in backward.
  Overlap overlap = Overlap::full;
};

void PrintTo(const NormSetting& setting, std::ostream* out) {
  *out << setting.name;
}

/// float64 as in ZeRO's proof: where norms add in another order, rounding errors, which training
/// amplifies, are then small enough for 1e-6 to detect different arithmetic.
ZeroNet norm_net(torch::ScalarType type, std::uint64_t seed) {
  ZeroNet net;
  initialise(*net, seed);
  net->to(type);
  return net;
}

Values averaged_by_norms(int ranks, const NormSetting& setting) {
  Values values;
  run_on_loopback(ranks,
                  [&](const ProcessGroup& group) {
                    torch::set_num_threads(1);  // The same additions as in run_on_threads().
                    ZeroNet net = norm_net(torch::kFloat64, 3);
                    std::vector<torch::Tensor> all;  // Each once: one has two names.
                    for (const auto& [name, tensor] : trainable_parameters(*net))
                      all.push_back(tensor);
                    DataParallel model(net, {.process_group = group,
                                             .find_unused_parameters = true,
                                             .optimizer = setting.optimizer,
                                             .overlap = Overlap::backward});
                    train_on_tasks(model, kNormSteps, 1, [&] {
                      if (setting.max_norm > 0)
                        torch::nn::utils::clip_grad_norm_(all, setting.max_norm);
                      model.step();
                    });
                    if (group->getRank() == 0) values = values_of(*net);
                  },
                  {.algorithm = "all_reduce=exchange"});
  return values;
}

Values zero_by_norms(int ranks, const NormSetting& setting) {
  Values values;
  run_on_threads(ranks, [&](const ProcessGroup& group) {
    ZeroNet net = norm_net(torch::kFloat32, 3);
    Zero model(net, {.process_group = group,
                     .stage = 1,
                     .optimizer = setting.optimizer,
                     .max_grad_norm = setting.max_norm,
                     .bucket_cap_mb = 0.001});
    train_on_tasks(model, kNormSteps, 1, [&] { model.step(); });
    model.finish();
    if (group->getRank() == 0) values = values_of(*net);
  });
  return values;
}

Values served_by_norms(int workers, int servers, torch::ScalarType type,
                       const NormSetting& setting) {
  std::vector<Values> all(static_cast<std::size_t>(workers));
  run_on_threads(workers, [&](const ProcessGroup& group) {
    ZeroNet net = norm_net(type, static_cast<std::uint64_t>(3 + group->getRank()));
    Served model(net, {.process_group = group,
                       .servers = {.count = servers},
                       .optimizer = setting.optimizer,
                       .max_grad_norm = setting.max_norm,
                       .bucket_cap_mb = 0.001,
                       .overlap = setting.overlap});
    const auto after = [&] {
      if (!setting.in_backward) model.step();
    };
    const auto before = [&] {
      if (setting.in_backward) model.step_in_backward();
    };
    train_on_tasks(model, kNormSteps, 1, after, before);
    EXPECT_EQ(model.staleness().max(), 0);
    all[static_cast<std::size_t>(group->getRank())] = values_of(*model.module());
  });
  for (const Values& values : all) EXPECT_EQ(difference(values, all[0]), 0);
  return all[0];
}

/// DataParallel does not decay unused parameters, whose gradient is zero on servers.
double difference_of_used(Values a, Values b) {
  for (const char* name : {"never.weight", "never.bias"}) {
    a.erase(name);
    b.erase(name);
  }
  return difference(a, b);
}

class NormsOverServers : public testing::TestWithParam<NormSetting> {};
INSTANTIATE_TEST_SUITE_P(
    Served, NormsOverServers,
    testing::Values(NormSetting{"Lars", make_lars()}, NormSetting{"Lamb", make_lamb()},
                    NormSetting{"ClippedSgd", make_sgd, 0.05},
                    NormSetting{"ClippedAdam", make_adam, 0.05},
                    NormSetting{"ClippedLambInBackward", make_lamb(), 0.05, true},
                    NormSetting{"LarsWithoutOverlap", make_lars(), 0, false, Overlap::none}),
    [](const auto& given) { return given.param.name; });

TEST_P(NormsOverServers, AreThoseOfDataParallelism) {
  const Values expected = averaged_by_norms(4, GetParam());
  EXPECT_GT(expected.at("head.weight").abs().max().item<double>(), 0.1);
  for (const int servers : {1, 2, 3}) {
    const Values served = served_by_norms(4, servers, torch::kFloat64, GetParam());
    EXPECT_LT(difference_of_used(served, expected), 1e-6) << servers;
  }
}

/// On as many ranks as servers, squares have the same parts, and are added in the same order.
TEST_P(NormsOverServers, HaveTheBitsOfZero) {
  for (const int ranks : {1, 2, 4}) {
    const Values served = served_by_norms(ranks, ranks, torch::kFloat32, GetParam());
    EXPECT_EQ(difference(served, zero_by_norms(ranks, GetParam())), 0) << ranks;
  }
}

TEST(NormsOverServers, ClippingHasAnEffect) {
  const NormSetting clipped{"", make_sgd, 0.05};
  const NormSetting unclipped{"", make_sgd};
  EXPECT_GT(difference(served_by_norms(2, 2, torch::kFloat32, clipped),
                       served_by_norms(2, 2, torch::kFloat32, unclipped)),
            1e-2);
}

TEST(NormsOverServers, AServerThatFailsEndsTheOthers) {
  const auto errors = errors_on_threads(3, [&](const ProcessGroup& group) {
    ZeroNet net;
    Served model(net, {.process_group = group, .optimizer = make_lamb()});
    train_on_tasks(model, 3, 1, [&] { model.step(); });
    if (group->getRank() == 1) throw std::runtime_error("failed in a test");
    train_on_tasks(model, kNormSteps, 1, [&] { model.step(); });
  });
  EXPECT_THAT(errors[1], HasSubstr("failed in a test"));
  EXPECT_NE(errors[0], "");
  EXPECT_NE(errors[2], "");
}

std::string refusal_of(int workers, const ServedOptions& options) {
  return errors_on_threads(workers, [&](const ProcessGroup& group) {
    ServedOptions given = options;
    given.process_group = group;
    Served model(ZeroNet(), given);
  })[0];
}

TEST(NormsOverServers, AreRefusedWhereServersStepWithOtherGradients) {
  EXPECT_THAT(refusal_of(1, {.servers = {.mode = "async"}, .optimizer = make_lars()}),
              HasSubstr("RangerLars need norms over all servers, and in mode async"));
  EXPECT_THAT(refusal_of(1, {.servers = {.mode = "ssp:2"}, .optimizer = make_lamb()}),
              HasSubstr("in mode ssp:2 each gradient is a step"));
  EXPECT_THAT(refusal_of(2, {.servers = {.use = 0.5}, .optimizer = make_lamb()}),
              HasSubstr("with use 0.5 each server steps with the gradients that reach it first"));
  EXPECT_THAT(
      refusal_of(1, {.servers = {.mode = "async"}, .optimizer = make_sgd, .max_grad_norm = 1}),
      HasSubstr("max_grad_norm needs the norm over all servers, and in mode async"));
  EXPECT_THAT(refusal_of(1, {.optimizer = make_sgd, .max_grad_norm = -1}),
              HasSubstr("max_grad_norm is -1"));
}

TEST(NormsOverServers, AreNotOfDifferencesOfLocalSteps) {
  const auto error = errors_on_threads(1, [](const ProcessGroup& group) {
    ZeroNet net;
    ServedLocalSteps local(trainable_parameters(*net), {.process_group = group, .max_grad_norm = 1},
                           {.steps = 2});
  })[0];
  EXPECT_THAT(error, HasSubstr("would clip differences"));
}

}  // namespace
}  // namespace gradwire::test
