#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/host/torch_exchange.h"
#include "gradwire/torch/hybrid_process_group.h"
#include "gradwire/train/device_parallel/device_parallel.h"
#include "gradwire/train/local_sgd/local_sgd.h"
#include "tests/support/error_of.h"
#include "tests/support/torch/loopback.h"
#include "tests/support/torch/queue_device.h"
#include "tests/torch/host_backend.h"
#include "tests/train/small_models.h"
#include "tests/train/zero_model.h"

/// Strategies on groups in two levels: two hosts of two ranks.
namespace gradwire::test {
namespace {

using ::testing::HasSubstr;

constexpr int kHosts = 2, kPlaces = 2, kHybridSteps = 5;

enum class Inside { none, own, other };

/// Runs `body` on each rank's group. Inside a host is nothing, gradwire's own, or another backend.
void run_on_hosts(Inside inside, const std::function<void(const ProcessGroup&)>& body) {
  std::vector<std::shared_ptr<Host>> reductions, gathers;
  for (int host = 0; host < kHosts; ++host) {
    reductions.push_back(std::make_shared<Host>(kPlaces));
    gathers.push_back(std::make_shared<Host>(kPlaces));
  }
  run_on_loopback(kHosts * kPlaces, [&](const auto& group) {
    if (inside == Inside::none) return body(group);
    const auto grid =
        host_grid(*communicator_of(*group), std::to_string(group->getRank() / kPlaces));
    InsideBackends backends;
    if (inside == Inside::other) {
      const auto place = static_cast<int>(grid.place);
      backends = {c10::make_intrusive<HostBackend>(reductions[grid.host], place, kPlaces),
                  c10::make_intrusive<HostBackend>(gathers[grid.host], place, kPlaces)};
    }
    body(hybrid_group(*group, grid, backends));
  });
}

struct HybridWay {
  int stage = 0;  ///< 0: DataParallel.
  std::string codec = "none";
  step::Overlap overlap = step::Overlap::backward;
  double tolerance = 1e-5;
};

void PrintTo(const HybridWay& way, std::ostream* out) {
  *out << "stage " << way.stage << ", codec " << way.codec << ", overlap "
       << static_cast<int>(way.overlap);
}

Values train_as(const HybridWay& way, const ProcessGroup& group, bool accelerator) {
  ZeroNet module;
  initialise(*module, 1);
  if (accelerator) {
    to_queue_device(at::empty({0}), group->getRank());  // Makes it current.
    for (auto& parameter : module->parameters()) move_to_queue_device(parameter, group->getRank());
  }
  const auto values_after = [&](auto& model) {
    train_on_tasks(model, kHybridSteps, 2, [&] { model.step(); });
    if constexpr (requires { model.consolidate(); }) model.consolidate();
    Values values = values_of(*model.module());
    if (accelerator)
      for (auto& [name, tensor] : values) tensor = to_host(tensor);
    return values;
  };
  if (way.stage > 0) {
    Zero model(module, {.process_group = group,
                        .stage = way.stage,
                        .optimizer = make_adam,
                        .codec = way.codec,
                        .codec_min_elements = 0,
                        .overlap = way.overlap,
                        .min_block_elements = 0,
                        .prefetch_elements = 0});
    return values_after(model);
  }
  DataParallel model(module, {.process_group = group,
                              .bucket_cap_mb = 0.002,
                              .find_unused_parameters = true,
                              .optimizer = make_adam,
                              .overlap = way.overlap,
                              .codec = way.codec,
                              .codec_min_elements = 0});
  return values_after(model);
}

/// Trains on all ranks, checks that their values have the same bits, and returns these.
Values values_of_all(const HybridWay& way, Inside inside, bool accelerator = false) {
  std::array<Values, kHosts * kPlaces> values;
  run_on_hosts(inside, [&](const ProcessGroup& group) {
    values[static_cast<std::size_t>(group->getRank())] = train_as(way, group, accelerator);
  });
  for (const Values& other : values) EXPECT_EQ(difference(values[0], other), 0);
  return values[0];
}

struct InTwoLevels : ::testing::TestWithParam<HybridWay> {
  InTwoLevels() {
    at::set_num_threads(1);
    install_queue_device();
  }
};

TEST_P(InTwoLevels, TrainsTheSameModel) {
  const Values flat = values_of_all(GetParam(), Inside::none);
  const Values own = values_of_all(GetParam(), Inside::own);
  EXPECT_LE(difference(flat, own), GetParam().tolerance);
  EXPECT_EQ(difference(own, values_of_all(GetParam(), Inside::other)), 0);
  // Kernels round differently by the alignment of their memory.
  const Values there = values_of_all(GetParam(), Inside::own, /*accelerator=*/true);
  EXPECT_LE(difference(own, there), GetParam().tolerance);
}

INSTANTIATE_TEST_SUITE_P(
    Ways, InTwoLevels,
    ::testing::Values(HybridWay{}, HybridWay{.overlap = step::Overlap::full},
                      HybridWay{.codec = "int8", .tolerance = 0.05},
                      HybridWay{.codec = "top_k:0.2", .tolerance = 0.5}, HybridWay{.stage = 1},
                      HybridWay{.stage = 2, .overlap = step::Overlap::full},
                      HybridWay{.stage = 2, .codec = "int8", .tolerance = 0.05},
                      HybridWay{.stage = 3},
                      HybridWay{.stage = 3, .overlap = step::Overlap::full}));

TEST_F(InTwoLevels, LocalStepsMeet) {
  const auto train = [](Inside inside) {
    std::vector<torch::Tensor> ends;
    run_on_hosts(inside, [&](const ProcessGroup& group) {
      const auto parameter = torch::arange(60, torch::kFloat32).view({6, 10}).clone();
      LocalSgd local({{"p", parameter}}, group,
                     {.steps = {.steps = 2, .outer_momentum = 0.9, .overlap_steps = 1}});
      for (int step = 0; step < 5; ++step) {
        parameter.sub_(torch::full_like(parameter, 0.25 * group->getRank() + step));
        local.step();
      }
      local.synchronize();
      if (group->getRank() == 0) ends.push_back(parameter);
    });
    return ends;
  };
  expect_equal(train(Inside::none), train(Inside::own));
  expect_equal(train(Inside::none), train(Inside::other));
}

TEST_F(InTwoLevels, StateOfACodecIsRestored) {
  const std::vector<exchange::UnitShape> units{
      {.count = 1001, .tensors = {{.name = "weight", .columns = 1001}}}};
  run_on_hosts(Inside::own, [&](const ProcessGroup& group) {
    const auto exchange_of = [&] {
      return torch_exchange("test", group, {torch::zeros({1})}, units, {.codec = "top_k:0.1"},
                            nullptr);
    };
    const auto mean = [&](exchange::Exchange& exchange) {
      const auto data = torch::arange(1001, torch::kFloat32) * (group->getRank() + 1);
      exchange.all_reduce(0, lend(data, {"test", "data", 0}), 0).wait();
      exchange.end_pass();
      return data;
    };
    const auto first = exchange_of();
    mean(*first);
    std::vector<torch::Tensor> copies;
    std::vector<exchange::Exchange::SavedState> saved;
    for (const auto& [name, data] : first->state()) {
      copies.push_back(copy_of(data));
      saved.push_back({name, lend(copies.back(), {"test", "state", 0})});
    }
    EXPECT_FALSE(saved.empty());
    const auto second = exchange_of();
    second->load_state(saved);
    EXPECT_TRUE(mean(*first).equal(mean(*second)));
  });
}

TEST_F(InTwoLevels, UnitsWithoutElementsComplete) {
  run_on_hosts(Inside::own, [](const ProcessGroup& group) {
    const auto empty = torch::zeros({0});
    const auto span = [&] { return lend(empty, {"test", "data", 0}); };
    const auto exchange = torch_exchange("test", group, {empty}, {{.count = 0}}, {}, nullptr);
    exchange->all_reduce(0, span(), 0).wait();
    exchange->reduce_scatter(0, span(), span(), 0).wait();
    exchange->all_gather(0, span(), span(), 0).wait();
  });
}

TEST_F(InTwoLevels, WhatTheyLackIsRefusedByName) {
  run_on_hosts(Inside::own, [](const ProcessGroup& group) {
    EXPECT_THAT(error_of([&] { train_as({.codec = "power_sgd:2"}, group, false); }),
                HasSubstr("with inside, each rank of a host has a part of each matrix"));
    EXPECT_THAT(error_of([&] {
                  subgroup_of(*group, {0, 1, 2, 3});
                }),
                HasSubstr("a group with inside does not have subgroups"));
    EXPECT_THAT(error_of([&] {
                  const DeviceGroup devices(group, {torch::kCPU, torch::kCPU});
                }),
                HasSubstr("a group with inside does not have several devices in one process"));
  });
}

}  // namespace
}  // namespace gradwire::test
