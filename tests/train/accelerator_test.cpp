#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/base/error.h"
#include "gradwire/memory/mapped_tensor.h"
#include "gradwire/train/activation/activation_checkpoint.h"
#include "gradwire/train/checkpoint/checkpoint.h"
#include "gradwire/train/checkpoint/replicated.h"
#include "gradwire/train/device_parallel/device_parallel.h"
#include "gradwire/train/local_sgd/local_sgd.h"
#include "gradwire/train/optim/layerwise.h"
#include "tests/support/error_of.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/torch/loopback.h"
#include "tests/support/torch/queue_device.h"
#include "tests/train/small_models.h"
#include "tests/train/zero_model.h"

/// Modules on an accelerator, over gradwire's process group. Training is bitwise identical to that
/// of the same modules on the CPU, because the device computes with the CPU's kernels.
namespace gradwire::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int kStepsThere = 4;

struct Way {
  int stage = 0;  ///< 0: DataParallel.
  std::string codec = "none";
  step::Overlap overlap = step::Overlap::backward;
  torch::ScalarType type = torch::kFloat32;
  double max_grad_norm = 0;
  OptimizerFactory optimizer = make_adam;
};

std::unique_ptr<torch::optim::Optimizer> make_lamb(std::vector<torch::Tensor> parameters) {
  return std::make_unique<Lamb>(std::move(parameters), LambOptions(0.01));
}

void PrintTo(const Way& way, std::ostream* out) {
  *out << "stage " << way.stage << ", codec " << way.codec << ", overlap "
       << static_cast<int>(way.overlap) << ", " << way.type << ", clipped to " << way.max_grad_norm;
}

/// Each rank has its own device.
at::Device device_for(const ProcessGroup& group, bool accelerator) {
  if (!accelerator) return at::kCPU;
  to_queue_device(at::empty({0}), group->getRank());  // Makes it current.
  return queue_device(group->getRank());
}

void move(const torch::nn::Module& module, at::Device device) {
  if (device.is_cpu()) return;
  for (auto& parameter : module.parameters()) move_to_queue_device(parameter, device.index());
}

Values on_host(const Values& values) {
  Values copies;
  for (const auto& [name, tensor] : values) copies[name] = to_host(tensor);
  return copies;
}

template <class Model>
Values values_after_training(Model& model) {
  train_on_tasks(model, kStepsThere, 2, [&] { model.step(); });
  if constexpr (requires { model.consolidate(); }) model.consolidate();
  return on_host(values_of(*model.module()));
}

Values train_as(const Way& way, const ProcessGroup& group, at::Device device,
                TraceRecorder* trace = nullptr) {
  ZeroNet module;
  initialise(*module, 1);
  move(*module, device);
  if (way.stage > 0) {
    Zero model(module, {.process_group = group,
                        .stage = way.stage,
                        .optimizer = way.optimizer,
                        .parameters = way.type,
                        .codec = way.codec,
                        .codec_min_elements = 0,
                        .max_grad_norm = way.max_grad_norm,
                        .overlap = way.overlap,
                        .min_block_elements = 0,
                        .prefetch_elements = 0,
                        .trace = trace});
    return values_after_training(model);
  }
  DataParallel model(module, {.process_group = group,
                              .bucket_cap_mb = 0.002,
                              .find_unused_parameters = true,
                              .optimizer = make_adam,
                              .overlap = way.overlap,
                              .codec = way.codec,
                              .codec_min_elements = 0,
                              .trace = trace});
  return values_after_training(model);
}

/// Rank 0's final values.
Values train(const Way& way, bool accelerator) {
  Values values;
  run_on_loopback(2, [&](const auto& group) {
    auto own = train_as(way, group, device_for(group, accelerator));
    if (group->getRank() == 0) values = std::move(own);
  });
  return values;
}

struct OnAnAccelerator : ::testing::TestWithParam<Way> {
  OnAnAccelerator() {
    at::set_num_threads(1);
    install_queue_device();
  }
};

TEST_P(OnAnAccelerator, TrainsTheBitsOfTheCpu) {
  EXPECT_EQ(difference(train(GetParam(), false), train(GetParam(), true)), 0);
}

/// Two devices of one process, in place of two ranks with sockets.
TEST_P(OnAnAccelerator, TrainsTheBitsOfTheCpuOnDevicesOfAProcess) {
  const DeviceGroup group(nullptr, {queue_device(0), queue_device(1)});
  Values values;
  group.run([&](int index) {
    Values own = train_as(GetParam(), group.group(index), group.device(index));
    if (index == 0) values = std::move(own);
  });
  EXPECT_EQ(difference(train(GetParam(), false), values), 0);
}

INSTANTIATE_TEST_SUITE_P(Ways, OnAnAccelerator,
                         ::testing::Values(Way{.stage = 0},
                                           Way{.stage = 0, .overlap = step::Overlap::full},
                                           Way{.stage = 0, .overlap = step::Overlap::none},
                                           Way{.stage = 0, .codec = "int8"}, Way{.stage = 1},
                                           Way{.stage = 2, .overlap = step::Overlap::full},
                                           Way{.stage = 2, .codec = "int8"}, Way{.stage = 3},
                                           Way{.stage = 3, .overlap = step::Overlap::full},
                                           Way{.stage = 3, .type = torch::kBFloat16},
                                           Way{.stage = 2, .optimizer = make_lamb},
                                           Way{.stage = 3, .max_grad_norm = 0.5}));

/// Returns the bytes that rank 0 sent, by kind.
std::map<std::string, std::uint64_t> traced(int stage, bool accelerator) {
  std::map<std::string, std::uint64_t> bytes;
  run_on_loopback(2, [&](const auto& group) {
    const SteadyClock clock;
    TraceRecorder recorder(clock);
    train_as({.stage = stage}, group, device_for(group, accelerator), &recorder);
    if (group->getRank() != 0) return;
    const auto log = recorder.log();
    for (const auto& span : log.spans) {
      if (span.kind == TraceKind::communication) bytes[log.names.at(span.name)] += span.bytes;
    }
  });
  return bytes;
}

TEST_F(OnAnAccelerator, TracesSayHowManyBytesTravelled) {
  for (const int stage : {0, 2}) {
    const auto there = traced(stage, true);
    EXPECT_EQ(there, traced(stage, false)) << "stage " << stage;
    EXPECT_FALSE(there.empty());
  }
}

TEST_F(OnAnAccelerator, LocalStepsMeetThere) {
  const auto train = [](bool accelerator) {
    std::vector<torch::Tensor> ends;
    run_on_loopback(2, [&](const auto& group) {
      const auto device = device_for(group, accelerator);
      const auto parameter = torch::arange(60, torch::kFloat32).view({6, 10}).to(device);
      LocalSgd local({{"p", parameter}}, group,
                     {.steps = {.steps = 2, .outer_momentum = 0.9, .overlap_steps = 1}});
      for (int step = 0; step < 5; ++step) {
        parameter.sub_(torch::full_like(parameter, 0.1 * group->getRank() + step));
        local.step();
      }
      local.synchronize();
      if (group->getRank() == 0) ends.push_back(to_host(parameter));
    });
    return ends;
  };
  expect_equal(train(false), train(true));
}

TEST_F(OnAnAccelerator, ParametersElsewhereTooAreRefusedOnAllRanks) {
  run_on_loopback(2, [](const auto& group) {
    const auto device = device_for(group, true);
    torch::nn::Sequential module(torch::nn::Linear(2, 3), torch::nn::Linear(3, 2));
    move(*module->ptr(1), device);
    const auto names_both =
        AllOf(HasSubstr("are on queue:"), HasSubstr("on cpu; move the module to one device type"));
    const auto wrap = [&] {
      const DataParallel<torch::nn::Sequential> model(module, {.process_group = group});
    };
    EXPECT_THAT(error_of(wrap), names_both);
    const auto spread = [&] {
      const Zero<torch::nn::Sequential> model(
          module, {.process_group = group, .stage = 2, .optimizer = make_adam});
    };
    EXPECT_THAT(error_of(spread), names_both);
  });
}

TEST_F(OnAnAccelerator, StatesInFilesAreForTheCpu) {
  const TemporaryFolder folder;
  run_on_loopback(2, [&](const auto& group) {
    torch::nn::Linear module(4, 4);
    move(*module, device_for(group, true));
    const auto wrap = [&] {
      const Zero<torch::nn::Linear> model(module, {.process_group = group,
                                                   .stage = 1,
                                                   .optimizer = make_adam,
                                                   .offload_optimizer = folder.path()});
    };
    EXPECT_THAT(error_of(wrap),
                AllOf(HasSubstr("offload_optimizer"), HasSubstr("'bias' is on queue:")));
  });
  const auto there = to_queue_device(torch::ones({4}), 0);
  EXPECT_THAT(error_of([&] { move_to_file(there, folder.path()); }),
              HasSubstr("move_to_file: a tensor is on queue:0"));
}

/// Draws from the device's own generator, as dropout does.
torch::Tensor draw(const torch::Tensor& like) {
  auto generator = at::globalContext().defaultGenerator(like.device());
  return torch::empty(like.sizes()).uniform_(0, 1, generator).to(like.device());
}

TEST_F(OnAnAccelerator, CheckpointedActivationsDrawTheSameNumbersAgain) {
  const auto x = to_queue_device(torch::ones({8}), 0).requires_grad_();
  std::vector<torch::Tensor> drawn;
  const auto dropout = [&](const torch::Tensor& input) {
    drawn.push_back(draw(input));
    return input * drawn.back();
  };
  const auto output = checkpointed(dropout, x);
  const auto later = draw(x);
  output.sum().backward();
  ASSERT_EQ(drawn.size(), 2u);
  EXPECT_TRUE(to_host(drawn[0]).equal(to_host(drawn[1])));
  EXPECT_TRUE(to_host(x.grad()).equal(to_host(drawn[0])));
  EXPECT_FALSE(to_host(draw(x)).equal(to_host(later))) << "recomputing must not turn it back";
}

struct Resumed {
  Values values;
  torch::Tensor random;
};

/// Takes two steps; if `folder` is not empty, saves and loads into a new model in between.
Resumed two_steps(const std::filesystem::path& folder, bool accelerator) {
  Resumed end;
  run_on_loopback(1, [&](const auto& group) {
    const auto device = device_for(group, accelerator);
    set_random_seed(5, device);
    torch::nn::Linear module(4, 3);
    initialise(*module, 2);
    move(*module, device);
    auto model = std::make_unique<DataParallel<torch::nn::Linear>>(
        module, DataParallelOptions{.process_group = group, .optimizer = make_adam});
    const auto step = [&] {
      auto input = torch::empty({5, 4}).to(device);
      (*model)(draw(input)).square().sum().backward();
      model->step();
    };
    step();
    if (!folder.empty()) {
      ReplicatedModel state(*model->module(), model->core());
      const RunState run{.group = group, .model = state};
      save_checkpoint(run, 1, {.folder = folder});
      set_random_seed(77, device);
      const torch::NoGradGuard no_grad;
      for (auto& parameter : module->parameters()) parameter.zero_();
      load_checkpoint(folder, run);
    }
    step();
    end.values = on_host(values_of(*model->module()));
    end.random = random_state(device);
  });
  return end;
}

TEST_F(OnAnAccelerator, ACheckpointBringsBackTheModelAndItsRandomNumbers) {
  const TemporaryFolder folder;
  const auto whole = two_steps({}, true);
  const auto resumed = two_steps(folder.path(), true);
  EXPECT_EQ(difference(whole.values, resumed.values), 0);
  EXPECT_TRUE(whole.random.equal(resumed.random));
}

}  // namespace
}  // namespace gradwire::test
