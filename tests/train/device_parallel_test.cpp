#include "gradwire/train/device_parallel/device_parallel.h"

#include <atomic>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/base/error.h"
#include "gradwire/train/checkpoint/safetensors.h"
#include "tests/support/error_of.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/torch/loopback.h"
#include "tests/support/torch/thread_group.h"
#include "tests/train/proof_model.h"
#include "tests/train/subprocess.h"

namespace gradwire::test {
namespace {

using testing::HasSubstr;

std::vector<torch::Device> cpus(int devices) {
  return std::vector<torch::Device>(static_cast<std::size_t>(devices), torch::kCPU);
}

/// Trains on devices of this process, one of those of `between`. The parameters of each.
std::vector<Parameters> train_on_devices(const ProcessGroup& between, int devices, Rule rule,
                                         const ProofOptions& options = {}) {
  const DeviceGroup group(between, cpus(devices));
  std::vector<Parameters> trained(static_cast<std::size_t>(devices));
  group.run([&](int index) {
    trained[static_cast<std::size_t>(index)] =
        train_proof_net(group.group(index), rule, 50, options);
  });
  return trained;
}

struct DeviceProof : testing::TestWithParam<Rule> {
  DeviceProof() { at::set_num_threads(1); }
  ~DeviceProof() override { at::set_num_threads(threads_); }

 private:
  int threads_ = at::get_num_threads();
};

TEST_P(DeviceProof, TwoDevicesHaveTheBitsOfTwoProcesses) {
  const TemporaryFolder folder;
  const auto programs = own_program().parent_path();
  const auto finished = run({programs / "gradwire", "run", "-n", "2", "--", programs / "train_rank",
                             "proof", GetParam() == Rule::adam ? "adam" : "sgd", folder.path()},
                            {{"OMP_NUM_THREADS", "1"}});
  ASSERT_EQ(finished.status, 0) << finished.output;
  const auto process = load_safetensors(folder / "0.safetensors").tensors;
  using enum step::Overlap;
  for (const auto overlap : {backward, full}) {
    const auto trained = train_on_devices(
        nullptr, 2, GetParam(), {.optimizer_per_bucket = overlap == full, .overlap = overlap});
    for (const Parameters& parameters : trained)
      EXPECT_EQ(largest_difference(process, parameters), 0);
  }
}

TEST_P(DeviceProof, TwoProcessesOfTwoHaveTheBitsOfFour) {
  std::vector<Parameters> apart(4), together(4);
  run_on_loopback(4,
                  [&](const auto& group) {
                    apart[static_cast<std::size_t>(group->getRank())] =
                        train_proof_net(group, GetParam(), 50);
                  },
                  {.algorithm = "all_reduce=recursive_doubling"});
  run_on_loopback(2, [&](const auto& group) {
    auto trained = train_on_devices(group, 2, GetParam());
    std::ranges::move(trained, together.begin() + 2 * group->getRank());
  });
  for (std::size_t rank = 0; rank < 4; ++rank)
    EXPECT_EQ(largest_difference(apart[0], together[rank]), 0) << rank;
  const auto alone = train_on_devices(nullptr, 4, GetParam());
  EXPECT_EQ(largest_difference(apart[0], alone[3]), 0);
}

INSTANTIATE_TEST_SUITE_P(Rules, DeviceProof, testing::Values(Rule::sgd_with_momentum, Rule::adam));

using Model = DeviceParallel<torch::nn::Linear>;

std::unique_ptr<torch::optim::Optimizer> half_sgd(std::vector<torch::Tensor> parameters) {
  return std::make_unique<torch::optim::SGD>(std::move(parameters), torch::optim::SGDOptions(0.5));
}

Model linear_on(int devices) {
  return Model([] { return torch::nn::Linear(2, 1); },
               {.devices = cpus(devices), .replica = {.optimizer = half_sgd}});
}

TEST(DeviceParallel, ReplicasTakeTheStepOfTheMeanGradient) {
  Model model = linear_on(3);
  ASSERT_EQ(model.devices(), 3);
  const torch::Tensor before = model.replica(0)->weight.detach().clone();
  EXPECT_TRUE(model.replica(2)->weight.equal(before));
  for (int runs = 0; runs < 2; ++runs) {
    model.run([&](Model::Replica& replica, int index) {
      EXPECT_EQ(replica.rank(), index);
      EXPECT_EQ(replica.world_size(), 3);
      replica(torch::full({1, 2}, index + 1.0)).sum().backward();
      replica.step();
    });
  }
  for (int index = 0; index < 3; ++index) {
    EXPECT_TRUE(model.replica(index)->weight.allclose(before - 2));
    EXPECT_TRUE(model.replica(index)->weight.equal(model.replica(0)->weight));
  }
}

TEST(DeviceParallel, ThreadsShareTheTorchThreadsOfTheCaller) {
  const int before = at::get_num_threads();
  at::set_num_threads(5);
  const DeviceGroup group(nullptr, cpus(2));
  std::atomic<int> sum = 0;
  group.run([&](int) { sum += at::get_num_threads(); });
  EXPECT_EQ(sum, 4);
  EXPECT_EQ(at::get_num_threads(), 5);
  at::set_num_threads(before);
}

TEST(DeviceParallel, TheFirstErrorEndsAllReplicas) {
  Model model = linear_on(3);
  std::atomic<int> ended = 0;
  const auto run = [&](int failing) {
    return error_of([&] {
      model.run([&](Model::Replica& replica, int index) {
        if (index == failing) throw std::runtime_error("no such image");
        try {
          replica(torch::ones({1, 2})).sum().backward();
          replica.step();
          replica.finish();
        } catch (const Exception& error) {
          EXPECT_THAT(error.what(), HasSubstr("no such image"));
          ++ended;
          throw;
        }
      });
    });
  };
  EXPECT_EQ(run(1), "no such image");
  EXPECT_EQ(ended, 2);
  EXPECT_THAT(run(-1), HasSubstr("no such image"));
}

TEST(DeviceParallel, AnErrorEndsOtherProcessesToo) {
  std::vector<std::string> errors(2);
  run_on_loopback(2, [&](const auto& between) {
    const DeviceGroup group(between, cpus(2));
    errors[static_cast<std::size_t>(between->getRank())] = error_of([&] {
      group.run([&](int index) {
        if (group.group(index)->getRank() == 3) throw std::runtime_error("out of disk");
        group.group(index)->barrier()->wait();
      });
    });
  });
  EXPECT_THAT(errors[0], HasSubstr("out of disk"));
  EXPECT_EQ(errors[1], "out of disk");
}

TEST(DeviceParallel, RefusesGroupsOfOtherBackends) {
  EXPECT_THAT(error_of([] { DeviceGroup(nullptr, {}); }), HasSubstr("devices is empty"));
  run_on_threads(1, [](const auto& group) {
    EXPECT_THAT(error_of([&] { DeviceGroup(group, cpus(2)); }), HasSubstr("gradwire::init()"));
  });
}

}  // namespace
}  // namespace gradwire::test
