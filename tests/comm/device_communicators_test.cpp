#include "gradwire/comm/devices/device_communicators.h"

#include <array>
#include <atomic>
#include <future>
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/base/error.h"
#include "gradwire/base/random.h"
#include "tests/support/error_of.h"
#include "tests/support/local_job.h"
#include "tests/support/run_case.h"
#include "tests/support/sim_collective.h"

/// Ranks that are threads of one process, and of several.
namespace gradwire::test {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

struct Processes {
  int processes = 1;
  int devices = 2;

  int ranks() const { return processes * devices; }
};

void PrintTo(const Processes& shape, std::ostream* out) {
  *out << shape.processes << "x" << shape.devices;
}

/// The devices of a job whose processes are threads over real sockets.
class DeviceJob {
 public:
  explicit DeviceJob(const Processes& shape, const CommunicatorOptions& options = {})
      : between_(shape.processes), devices_(static_cast<std::size_t>(shape.ranks())) {
    expect_no_errors(between_.run([&](Rank process, Communicator& communicator) {
      const std::shared_ptr<Communicator> unowned(&communicator, [](Communicator*) {});
      auto made = device_communicators(unowned, shape.devices, options);
      std::ranges::move(made, devices_.begin() + process * shape.devices);
    }));
  }
  ~DeviceJob() {
    run([this](Rank rank, Communicator&) { leave(rank); });
  }
  DeviceJob(const DeviceJob&) = delete;

  Communicator& on(Rank rank) { return *devices_[static_cast<std::size_t>(rank)]; }
  Communicator& between(Rank process) { return between_.on(process); }
  void leave(Rank rank) { devices_[static_cast<std::size_t>(rank)].reset(); }

  std::vector<std::string> run(const std::function<void(Rank, Communicator&)>& body) {
    std::vector<std::string> errors(devices_.size());
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < devices_.size(); ++i) {
      if (!devices_[i]) continue;
      threads.emplace_back([&, i] {
        try {
          body(static_cast<Rank>(i), *devices_[i]);
        } catch (const std::exception& error) {
          errors[i] = error.what();
        }
      });
    }
    threads.clear();
    return errors;
  }

 private:
  LocalJob between_;
  std::vector<std::shared_ptr<Communicator>> devices_;
};

std::vector<Memory> outputs_of(const Case& c, const std::vector<Memory>& inputs, DeviceJob& job) {
  std::vector<Memory> outputs(inputs.size());
  expect_no_errors(job.run([&](Rank rank, Communicator& communicator) {
    const auto i = static_cast<std::size_t>(rank);
    outputs[i] = run_case(c, inputs[i], rank, communicator, {});
  }));
  return outputs;
}

void expect_right_on(DeviceJob& job, const Case& c) {
  SCOPED_TRACE(c.describe());
  const auto inputs = make_inputs(c, 5);
  const auto outputs = outputs_of(c, inputs, job);
  for (Rank r = 0; r < c.ranks; ++r)
    expect_right(c, r, inputs, outputs[static_cast<std::size_t>(r)]);
}

struct DeviceCommunicators : testing::TestWithParam<Processes> {};

constexpr std::size_t kManySlices = 100'003;

void expect_all(const std::vector<float>& values, float value) {
  EXPECT_EQ(values, std::vector<float>(values.size(), value));
}

TEST_P(DeviceCommunicators, EveryCollectiveAndSizeIsRight) {
  DeviceJob job(GetParam());
  const int ranks = GetParam().ranks();
  using enum schedule::Collective;
  for (const auto collective : {all_reduce, broadcast, all_gather, reduce_scatter, reduce, gather,
                                scatter, all_to_all, barrier}) {
    for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{1021}, kManySlices})
      for (const Rank root : {0, ranks - 1}) {
        expect_right_on(job,
                        {.collective = collective,
                         .algorithm = std::string(schedule::algorithm_names(collective).front()),
                         .ranks = ranks,
                         .count = collective == barrier ? 0 : count,
                         .root = root});
        if (HasFailure()) return;
      }
  }
}

TEST_P(DeviceCommunicators, EveryTypeAndReductionIsRight) {
  DeviceJob job(GetParam());
  using enum schedule::Collective;
  for (const DataType type : all_data_types()) {
    for (const ReduceOp op : all_reduce_ops()) {
      for (const auto collective : {all_reduce, reduce_scatter, reduce}) {
        expect_right_on(job,
                        {.collective = collective,
                         .algorithm = std::string(schedule::algorithm_names(collective).front()),
                         .ranks = GetParam().ranks(),
                         .count = 257,
                         .type = type,
                         .op = op});
        if (HasFailure()) return;
      }
    }
  }
}

/// Rank a of the larger group sends a + 2 b + 1 elements to rank b.
TEST_P(DeviceCommunicators, UnequalPartsArrive) {
  DeviceJob job(GetParam());
  const auto size = [](Rank from, Rank to) { return static_cast<std::size_t>(from + 2 * to + 1); };
  const auto value = [](Rank from, Rank to) { return static_cast<float>(100 * from + to); };
  expect_no_errors(job.run([&](Rank rank, Communicator& c) {
    std::vector<float> input, expected;
    std::vector<std::size_t> sent, received;
    for (Rank other = 0; other < c.size(); ++other) {
      sent.push_back(size(rank, other));
      received.push_back(size(other, rank));
      input.insert(input.end(), sent.back(), value(rank, other));
      expected.insert(expected.end(), received.back(), value(other, rank));
    }
    std::vector<float> output(expected.size());
    c.all_to_all(lend(input), lend(output), sent, received).wait();
    EXPECT_EQ(output, expected);
  }));
}

TEST_P(DeviceCommunicators, MessagesOfAllPairsAndTagsArriveInOrder) {
  DeviceJob job(GetParam());
  const auto value = [](Rank from, Rank to, int tag, int n) {
    return static_cast<float>(((from * 10 + to) * 10 + tag) * 10 + n);
  };
  expect_no_errors(job.run([&](Rank rank, Communicator& c) {
    std::vector<Work> works;
    std::vector<std::vector<float>> sent, received;
    std::vector<float> expected;
    for (int n = 0; n < 3; ++n) {
      for (const int tag : {1, 0}) {
        for (Rank other = 0; other < c.size(); ++other) {
          sent.emplace_back(kManySlices, value(rank, other, tag, n));
          works.push_back(c.send(lend(sent.back()), other, tag));
          received.emplace_back(kManySlices);
          works.push_back(c.recv(lend(received.back()), other, tag));
          expected.push_back(value(other, rank, tag, n));
        }
      }
    }
    for (const Work& work : works) work.wait();
    for (std::size_t i = 0; i < expected.size(); ++i) expect_all(received[i], expected[i]);
  }));
}

/// Lanes are mixed in another order by each rank.
TEST_P(DeviceCommunicators, LanesAreIndependent) {
  constexpr std::size_t kLanes = 5, kEach = 8;
  DeviceJob job(GetParam());
  expect_no_errors(job.run([&](Rank rank, Communicator& c) {
    const int first = c.reserve_lanes(kLanes);
    Random random(static_cast<std::uint64_t>(rank) + 3);
    std::vector<std::vector<float>> data(kLanes * kEach);
    std::vector<std::size_t> called(kLanes);
    std::vector<Work> works;
    while (works.size() < data.size()) {
      const std::size_t lane = random.below(kLanes);
      if (called[lane] == kEach) continue;
      const std::size_t n = called[lane]++;
      auto& values = data[lane * kEach + n];
      values.assign(1 + lane * 11 + n * n * 700, static_cast<float>(n + 1));
      works.push_back(c.all_reduce(
          lend(values), ReduceOp::sum,
          {.priority = static_cast<int>(random.below(3)), .lane = first + static_cast<int>(lane)}));
    }
    for (const Work& work : works) work.wait();
    for (std::size_t i = 0; i < data.size(); ++i)
      expect_all(data[i], static_cast<float>((i % kEach + 1)) * static_cast<float>(c.size()));
  }));
}

TEST_P(DeviceCommunicators, OperationsCompleteWithoutAWait) {
  DeviceJob job(GetParam());
  expect_no_errors(job.run([&](Rank, Communicator& c) {
    std::vector<float> values(kManySlices, 1), again(kManySlices, 1);
    std::promise<void> both;
    // The callback's operation is posted by the thread that completes the first one.
    c.all_reduce(lend(values), ReduceOp::sum).on_done([&](const Work& first) {
      EXPECT_EQ(first.error(), nullptr);
      c.all_reduce(lend(again), ReduceOp::mean).on_done([&](const Work&) { both.set_value(); });
    });
    both.get_future().wait();
    expect_all(values, static_cast<float>(c.size()));
    expect_all(again, 1.F);
  }));
}

TEST_P(DeviceCommunicators, CoalescedOperationsEndTogether) {
  DeviceJob job(GetParam());
  expect_no_errors(job.run([&](Rank, Communicator& c) {
    std::vector<std::vector<float>> values(4, std::vector<float>(kManySlices, 1));
    c.coalesced([&](Communicator& together) {
       for (auto& each : values) together.all_reduce(lend(each), ReduceOp::sum);
     }).wait();
    for (const auto& each : values) expect_all(each, static_cast<float>(c.size()));
  }));
}

TEST_P(DeviceCommunicators, AnAbortEndsAllRanks) {
  DeviceJob job(GetParam());
  const Rank last = GetParam().ranks() - 1;
  const auto errors = job.run([&](Rank rank, Communicator& c) {
    std::vector<float> values(10);
    if (rank == last) return c.abort("its batch is empty");
    c.all_reduce(lend(values), ReduceOp::sum).wait();
  });
  for (Rank rank = 0; rank < last; ++rank) {
    EXPECT_THAT(errors[static_cast<std::size_t>(rank)], HasSubstr("its batch is empty"));
  }
  EXPECT_THAT(job.run([](Rank, Communicator& c) { c.barrier().wait(); }),
              Each(HasSubstr("unusable after an earlier error")));
}

TEST_P(DeviceCommunicators, RanksThatDisagreeAreToldBoth) {
  DeviceJob job(GetParam());
  const auto errors = job.run([&](Rank rank, Communicator& c) {
    std::vector<float> values(rank == 1 ? 11 : 10);
    c.all_reduce(lend(values), ReduceOp::sum).wait();
  });
  EXPECT_THAT(errors, Each(AllOf(HasSubstr("11 float32"), HasSubstr("10 float32"))));
}

TEST_P(DeviceCommunicators, ARankThatDoesNotComeIsNamed) {
  DeviceJob job(GetParam());
  const auto errors = job.run([&](Rank rank, Communicator& c) {
    if (rank != 1) c.barrier({.timeout = std::chrono::milliseconds(50)}).wait();
  });
  EXPECT_THAT(errors[0], HasSubstr("timeout"));
  if (GetParam().processes > 1) return;  // It may have been another process's timeout.
  EXPECT_THAT(errors[0], HasSubstr("rank 1 has not called it"));
}

TEST_P(DeviceCommunicators, ARankThatLeavesEndsWhatNeedsIt) {
  DeviceJob job(GetParam());
  const auto errors = job.run([&](Rank rank, Communicator& c) {
    if (rank == 1) return job.leave(1);
    c.barrier().wait();
  });
  EXPECT_THAT(errors[0], HasSubstr("rank 1 left the job"));
}

TEST_P(DeviceCommunicators, DataIsIntactAfterAFailureIfAskedFor) {
  DeviceJob job(GetParam());
  job.run([&](Rank rank, Communicator& c) {
    std::vector<float> values(kManySlices, 7), more(kManySlices, 7);
    c.all_reduce(lend(more), ReduceOp::sum, {.preserve_input = true}).wait();
    expect_all(more, 7.F * static_cast<float>(c.size()));
    if (rank == 0) return c.abort("enough");
    EXPECT_NE(error_of([&] {
                c.all_reduce(lend(values), ReduceOp::sum, {.preserve_input = true}).wait();
              }),
              "no error");
    expect_all(values, 7.F);
  });
}

std::string name_of_shape(const testing::TestParamInfo<Processes>& given) {
  return testing::PrintToString(given.param);
}

INSTANTIATE_TEST_SUITE_P(Shapes, DeviceCommunicators,
                         testing::Values(Processes{1, 2}, Processes{1, 3}, Processes{1, 5},
                                         Processes{2, 2}, Processes{3, 2}, Processes{2, 3}),
                         name_of_shape);

// --- the bits of processes ---

/// The bits of ranks over real sockets with an algorithm, which LocalJob has.
void expect_bits_of_processes(const Processes& shape, schedule::Collective collective,
                              const std::string& algorithm,
                              const CommunicatorOptions& between = {}) {
  SCOPED_TRACE(testing::PrintToString(shape));
  DeviceJob job(shape, between);
  LocalJob processes(shape.ranks());
  for (const ReduceOp op : {ReduceOp::sum, ReduceOp::mean}) {
    for (const DataType type : {DataType::float32, DataType::bfloat16}) {
      Case c{.collective = collective,
             .algorithm = algorithm,
             .ranks = shape.ranks(),
             .count = kManySlices,
             .type = type,
             .op = op};
      c.rough = true;
      const auto inputs = make_inputs(c, 9);
      const auto together = outputs_of(c, inputs, job);
      expect_no_errors(processes.run([&](Rank rank, Communicator& communicator) {
        const auto i = static_cast<std::size_t>(rank);
        const auto apart = run_case(c, inputs[i], rank, communicator, {.algorithm = c.algorithm});
        EXPECT_EQ(together[i], apart) << "on rank " << rank;
      }));
    }
  }
}

TEST(DeviceCommunicatorsBits, TwoAreThoseOfTwoProcessesWithAnyAlgorithm) {
  using enum schedule::Collective;
  for (const auto collective : {all_reduce, reduce_scatter}) {
    for (const std::string_view algorithm : schedule::algorithm_names(collective))
      expect_bits_of_processes({1, 2}, collective, std::string(algorithm));
  }
}

TEST(DeviceCommunicatorsBits, MoreAreThoseOfRecursiveDoubling) {
  for (const Processes shape :
       {Processes{1, 3}, Processes{1, 4}, Processes{1, 7}, Processes{2, 2}, Processes{2, 4}}) {
    expect_bits_of_processes(shape, schedule::Collective::all_reduce, "recursive_doubling");
  }
}

// --- one process ---

TEST(DeviceCommunicator, AReceiveFromAnyRankSaysWhoSent) {
  DeviceJob job({1, 3});
  expect_no_errors(job.run([](Rank rank, Communicator& c) {
    std::vector<float> value{static_cast<float>(rank)};
    if (rank > 0) return c.send(lend(value), 0, 4).wait();
    float sum = 0;
    for (int i = 0; i < 2; ++i) {
      const Work work = c.recv_any(lend(value), 4);
      work.wait();
      EXPECT_EQ(static_cast<float>(work.source()), value.front());
      sum += value.front();
    }
    EXPECT_EQ(sum, 3);
  }));
}

TEST(DeviceCommunicator, SubgroupsRunApart) {
  DeviceJob job({1, 4});
  expect_no_errors(job.run([](Rank rank, Communicator& c) {
    const Rank first = rank % 2;
    const auto pair = c.subgroup(std::array<Rank, 2>{first + 2, first});
    const auto again = c.subgroup(std::array<Rank, 2>{first + 2, first});
    EXPECT_EQ(pair->rank(), rank < 2 ? 1 : 0);
    std::vector<float> one{1}, two{static_cast<float>(rank)}, all{1};
    // Each rank in an order of its own.
    std::vector<Work> works;
    if (rank < 2) works.push_back(pair->all_reduce(lend(one), ReduceOp::sum));
    works.push_back(again->broadcast(lend(two), 0));
    works.push_back(c.all_reduce(lend(all), ReduceOp::sum));
    if (rank >= 2) works.push_back(pair->all_reduce(lend(one), ReduceOp::sum));
    for (const Work& work : works) work.wait();
    EXPECT_EQ(one.front(), 2);
    EXPECT_EQ(two.front(), static_cast<float>(first + 2));
    EXPECT_EQ(all.front(), 4);
  }));
}

/// A barrier waits for the collectives before it, and their results are there.
TEST(DeviceCommunicator, ABarrierIsAFence) {
  DeviceJob job({1, 2});
  expect_no_errors(job.run([](Rank, Communicator& c) {
    for (int i = 0; i < 50; ++i) {
      std::vector<float> values(kManySlices, 1);
      const Work sum = c.all_reduce(lend(values), ReduceOp::sum);
      c.barrier().wait();
      EXPECT_TRUE(sum.done());
      sum.wait();
    }
  }));
}

TEST(DeviceCommunicator, RanksLeaveWhenWhatTheyPostedIsComplete) {
  DeviceJob job({1, 2});
  auto memory = std::make_shared<std::vector<float>>(kManySlices, 1.F);
  job.on(1).all_reduce({memory->data(), memory->size(), DataType::float32, memory}, ReduceOp::sum);
  job.on(1).send({memory->data(), memory->size(), DataType::float32, memory}, 0);
  std::vector<float> unanswered(1);
  const Work receive = job.on(1).recv(lend(unanswered), 0, 3);
  std::jthread leaver([&] { job.leave(1); });
  std::vector<float> values(kManySlices, 1), message(kManySlices);
  job.on(0).all_reduce(lend(values), ReduceOp::sum).wait();
  job.on(0).recv(lend(message), 1).wait();
  leaver.join();
  expect_all(values, 2.F);
  EXPECT_THAT(error_of([&] { receive.wait(); }), HasSubstr("closed"));
}

TEST(DeviceCommunicator, TheTimeoutIsThatBetweenProcesses) {
  LocalJob between(2, {.operation_timeout = std::chrono::milliseconds(50)});
  std::vector<std::shared_ptr<Communicator>> all(4);
  expect_no_errors(between.run([&](Rank process, Communicator& communicator) {
    const std::shared_ptr<Communicator> unowned(&communicator, [](Communicator*) {});
    std::ranges::move(device_communicators(unowned, 2), all.begin() + process * 2);
  }));
  const Work work = all[0]->barrier();
  EXPECT_FALSE(work.wait_for(std::chrono::seconds(0)));
  EXPECT_THAT(error_of([&] { work.wait_for(std::chrono::seconds(30)); }), HasSubstr("timeout"));
  all[0]->abort("the test is over");  // Else its end would wait.
}

TEST(DeviceCommunicator, WhatItLacksIsRefusedByName) {
  EXPECT_THAT(error_of([] { device_communicators(nullptr, 0); }), HasSubstr("0 devices"));
  EXPECT_THAT(
      error_of([] { device_communicators(nullptr, 2, {.failure_domain = FailureDomain::pair}); }),
      HasSubstr("communicator of pairs"));
  DeviceJob job({2, 2});
  expect_no_errors(job.run([](Rank, Communicator& c) {
    EXPECT_FALSE(c.traits().has_algorithms);
    EXPECT_FALSE(c.traits().has_pairs);
    std::vector<float> values(4);
    EXPECT_THAT(error_of([&] { c.recv_any(lend(values)); }), HasSubstr("receives from any rank"));
    EXPECT_THAT(error_of([&] {
                  c.subgroup(std::array<Rank, 4>{0, 1, 2, 3});
                }),
                HasSubstr("subgroups across processes"));
    EXPECT_THAT(error_of([&] { c.all_reduce(lend(values), ReduceOp::sum, {.algorithm = "ring"}); }),
                HasSubstr("force none"));
    EXPECT_THAT(error_of([&] { c.all_reduce(lend(values), ReduceOp::sum, {.lane = 9}); }),
                HasSubstr("not reserved"));
    EXPECT_THAT(error_of([&] { c.abort_with(1, "why"); }), HasSubstr("FailureDomain::pair"));
    c.barrier().wait();
  }));
}

/// Device 0 of each process counts the bytes that the process sends; the others count none.
TEST(DeviceCommunicator, ProcessesSendOnceForAllDevices) {
  DeviceJob job({2, 3});
  std::atomic<std::size_t> sent = 0;
  const std::size_t before = job.on(0).payload_bytes_sent();
  expect_no_errors(job.run([&](Rank rank, Communicator& c) {
    const std::size_t mine = c.payload_bytes_sent();
    std::vector<float> values(kManySlices, 1);
    c.all_reduce(lend(values), ReduceOp::sum).wait();
    c.barrier().wait();
    if (rank % 3 != 0) {
      EXPECT_EQ(c.payload_bytes_sent(), 0u);
    }
    sent += c.payload_bytes_sent() - mine;
  }));
  EXPECT_GE(job.on(0).payload_bytes_sent(), before);
  EXPECT_EQ(sent, 2 * kManySlices * sizeof(float));  // 2 (P - 1) / P of it, by each of 2.
}

}  // namespace
}  // namespace gradwire::test
