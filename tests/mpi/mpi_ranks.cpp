/// A rank of a job over MPI: every rank runs the same tests, started by MPI's own launcher
/// (tests/mpi/test_mpi.py).
#include <algorithm>
#include <barrier>
#include <chrono>
#include <csignal>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/base/random.h"
#include "gradwire/base/tags.h"
#include "gradwire/comm/communicator.h"
#include "gradwire/comm/devices/device_communicators.h"
#include "tests/support/error_of.h"
#include "tests/support/run_case.h"

namespace gradwire::test {
namespace {

std::shared_ptr<Communicator> world;  ///< All ranks.

LentSpan lend_all(std::vector<float>& values) {
  return {values.data(), values.size(), DataType::float32, nullptr};
}

void expect_true(const Case& c, const OperationOptions& options = {}) {
  SCOPED_TRACE(c.describe());
  const std::vector<Memory> inputs = make_inputs(c, 11);
  const auto self = static_cast<std::size_t>(world->rank());
  const Memory output = run_case(c, inputs[self], world->rank(), *world, options);
  expect_right(c, world->rank(), inputs, output);
}

TEST(MpiRanks, EveryCollectiveAndSize) {
  for (const auto collective :
       {Collective::all_reduce, Collective::broadcast, Collective::all_gather,
        Collective::reduce_scatter, Collective::reduce, Collective::gather, Collective::scatter,
        Collective::all_to_all, Collective::barrier}) {
    for (const std::size_t count : {0, 1, 1021, 1 << 18}) {
      for (const bool waits_at_once : {false, true}) {
        expect_true({.collective = collective,
                     .ranks = world->size(),
                     .count = collective == Collective::barrier ? 0 : count,
                     .root = world->size() - 1},
                    {.waits_at_once = waits_at_once});
      }
    }
  }
}

TEST(MpiRanks, EveryTypeAndReduction) {
  for (const DataType type : all_data_types())
    for (const ReduceOp op : all_reduce_ops())
      for (const auto collective :
           {Collective::all_reduce, Collective::reduce_scatter, Collective::reduce})
        expect_true({.collective = collective,
                     .ranks = world->size(),
                     .count = 257,
                     .type = type,
                     .op = op});
}

/// Elements that a rank sends to another one.
using PartSizes = std::size_t (*)(std::size_t from, std::size_t to);

void expect_parts(PartSizes size) {
  const auto ranks = static_cast<std::size_t>(world->size());
  const auto self = static_cast<std::size_t>(world->rank());
  std::vector<std::size_t> sent(ranks), received(ranks);
  std::vector<float> input, expected;
  for (std::size_t other = 0; other < ranks; ++other) {
    sent[other] = size(self, other);
    received[other] = size(other, self);
    input.insert(input.end(), sent[other], static_cast<float>(10 * self + other));
    expected.insert(expected.end(), received[other], static_cast<float>(10 * other + self));
  }
  for (const bool waits_at_once : {false, true}) {
    std::vector<float> output(expected.size(), -1);
    world
        ->all_to_all(lend_all(input), lend_all(output), sent, received,
                     {.waits_at_once = waits_at_once})
        .wait();
    EXPECT_EQ(output, expected);
  }
}

TEST(MpiRanks, PartsOfDifferentSizes) {
  expect_parts([](std::size_t from, std::size_t to) { return from + 2 * to; });
}

/// Buffers without elements have no address.
TEST(MpiRanks, PartsOfRanksThatSendOrReceiveNothing) {
  expect_parts([](std::size_t from, std::size_t) { return from == 0 ? 0 : std::size_t{3}; });
  expect_parts([](std::size_t, std::size_t to) { return to == 0 ? 0 : std::size_t{3}; });
  expect_parts([](std::size_t from, std::size_t to) { return from * to; });
  expect_parts([](std::size_t, std::size_t) { return std::size_t{0}; });
}

TEST(MpiRanks, InPlaceGathers) {
  const auto ranks = static_cast<std::size_t>(world->size());
  std::vector<float> all(3 * ranks, -1), expected;
  float* const own = all.data() + 3 * world->rank();
  std::fill_n(own, 3, static_cast<float>(world->rank()));
  world->all_gather({own, 3, DataType::float32}, lend_all(all)).wait();
  for (std::size_t rank = 0; rank < ranks; ++rank)
    expected.insert(expected.end(), 3, static_cast<float>(rank));
  EXPECT_EQ(all, expected);
}

TEST(MpiRanks, LanesInAnOrderOfEachRank) {
  constexpr int kLanes = 5, kEach = 6;
  const int first = world->reserve_lanes(kLanes);
  std::vector<int> lanes;
  for (int i = 0; i < kLanes * kEach; ++i) lanes.push_back(i % kLanes);
  Random random(static_cast<std::uint64_t>(world->rank()));
  for (std::size_t i = lanes.size(); i > 1; --i) std::swap(lanes[i - 1], lanes[random.below(i)]);
  std::vector<std::vector<float>> data;
  std::vector<Work> works;
  std::vector<int> called(kLanes);
  data.reserve(lanes.size());
  for (const int lane : lanes) {
    const int nth = called[static_cast<std::size_t>(lane)]++;
    data.emplace_back(static_cast<std::size_t>(1 + lane * 7 + nth * nth * 900),
                      static_cast<float>(100 * lane + nth));
    works.push_back(
        world->all_reduce(lend_all(data.back()), ReduceOp::mean, {.lane = first + lane}));
  }
  for (std::size_t i = works.size(); i-- > 0;) works[i].wait();
  std::ranges::fill(called, 0);
  for (std::size_t i = 0; i < lanes.size(); ++i) {
    const int nth = called[static_cast<std::size_t>(lanes[i])]++;
    EXPECT_EQ(data[i].front(), static_cast<float>(100 * lanes[i] + nth));
    EXPECT_EQ(data[i].back(), data[i].front());
  }
}

TEST(MpiRanks, AnUnreservedLaneIsRefused) {
  std::vector<float> one(1);
  EXPECT_THAT(error_of([&] { world->all_reduce(lend_all(one), ReduceOp::sum, {.lane = 9999}); }),
              testing::HasSubstr("lane 9999 is not reserved"));
}

TEST(MpiRanks, MessagesAlsoToItself) {
  constexpr int kLargeTag = kMaxTag;
  std::vector<std::vector<float>> sent, received;
  std::vector<Work> works;
  for (Rank other = 0; other < world->size(); ++other) {
    sent.emplace_back(40'001, static_cast<float>(10 * world->rank() + other));
    received.emplace_back(40'001);
    works.push_back(world->send(lend_all(sent.back()), other, kLargeTag));
    if (other == world->rank()) {
      EXPECT_TRUE(works.back().done());
      sent.back().assign(sent.back().size(), -1);  // The memory is the sender's again.
    }
    works.push_back(world->recv(lend_all(received.back()), other, kLargeTag));
  }
  for (const Work& work : works) work.wait();
  for (Rank other = 0; other < world->size(); ++other)
    EXPECT_EQ(received[static_cast<std::size_t>(other)],
              std::vector<float>(40'001, static_cast<float>(10 * other + world->rank())));
}

TEST(MpiRanks, AMessageWithoutElements) {
  const Rank next = (world->rank() + 1) % world->size();
  const Rank last = (world->rank() + world->size() - 1) % world->size();
  const Work sent = world->send({nullptr, 0, DataType::float32}, next);
  world->recv({nullptr, 0, DataType::float32, nullptr}, last).wait();
  sent.wait();
}

TEST(MpiRanks, AMessageOfAnySender) {
  if (world->rank() > 0) {
    std::vector<float> value(1, static_cast<float>(world->rank()));
    world->send(lend_all(value), 0, 3).wait();
    return;
  }
  for (Rank other = 1; other < world->size(); ++other) {
    std::vector<float> value(1);
    const Work work = world->recv_any(lend_all(value), 3);
    work.wait();
    EXPECT_EQ(value.front(), static_cast<float>(work.source()));
  }
}

TEST(MpiRanks, CoalescedMessages) {
  const Rank next = (world->rank() + 1) % world->size();
  const Rank last = (world->rank() + world->size() - 1) % world->size();
  std::vector<float> out(9, static_cast<float>(world->rank())), in(9);
  world
      ->coalesced([&](Communicator& together) {
        together.send(lend_all(out), next);
        together.recv(lend_all(in), last);
      })
      .wait();
  EXPECT_EQ(in, std::vector<float>(9, static_cast<float>(last)));
}

TEST(MpiRanks, Subgroups) {
  std::vector<Rank> same;  // Even or odd ranks.
  for (Rank rank = world->rank() % 2; rank < world->size(); rank += 2) same.push_back(rank);
  std::ranges::reverse(same);
  const auto group = world->subgroup(same);
  EXPECT_EQ(same[static_cast<std::size_t>(group->rank())], world->rank());
  EXPECT_EQ(group->traits().name, "mpi");
  std::vector<float> sum(1, static_cast<float>(world->rank()));
  group->all_reduce(lend_all(sum), ReduceOp::sum).wait();
  EXPECT_EQ(sum.front(), static_cast<float>(std::reduce(same.begin(), same.end())));
  const int lane = group->reserve_lanes(1);
  group->broadcast(lend_all(sum), group->size() - 1, {.lane = lane}).wait();
}

/// The progress thread moves operations on while no thread waits.
TEST(MpiRanks, OperationsEndWithoutAWait) {
  std::vector<float> data(1 << 18, 1);
  std::atomic<bool> is_done = false;
  const Work work = world->all_reduce(lend_all(data), ReduceOp::sum);
  work.on_done([&](const Work&) {
    is_done = true;
    is_done.notify_all();
  });
  is_done.wait(false);
  EXPECT_EQ(data.back(), static_cast<float>(world->size()));
}

TEST(MpiRanks, ABlockingOperationEndsWithoutAWait) {
  std::vector<float> data(1, 1);
  std::atomic<bool> is_done = false;
  const Work work = world->all_reduce(lend_all(data), ReduceOp::sum, {.waits_at_once = true});
  work.on_done([&](const Work&) {
    is_done = true;
    is_done.notify_all();
  });
  is_done.wait(false);
  EXPECT_EQ(data.front(), static_cast<float>(world->size()));
}

TEST(MpiRanks, SeveralThreadsWait) {
  constexpr int kThreads = 4, kTimes = 50;
  const int first = world->reserve_lanes(kThreads);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([first, t] {
      for (int i = 0; i < kTimes; ++i) {
        std::vector<float> data(static_cast<std::size_t>(1 + i * 37), static_cast<float>(t + i));
        world->all_reduce(lend_all(data), ReduceOp::mean, {.lane = first + t}).wait();
        EXPECT_EQ(data.back(), static_cast<float>(t + i));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

/// A device makes lanes, which waits for other processes, while an operation of all devices ends.
TEST(MpiRanks, DevicesOpenLanesDuringOperations) {
  auto devices = device_communicators(world, 2);
  std::barrier both(2);
  std::vector<std::jthread> threads;
  for (std::size_t d = 0; d < devices.size(); ++d) {
    threads.emplace_back([&both, d, device = std::move(devices[d])] {
      for (int i = 0; i < 100; ++i) {
        std::vector<std::vector<float>> data(20, std::vector<float>(100, 1));
        std::vector<Work> works;
        for (auto& each : data) works.push_back(device->all_reduce(lend_all(each), ReduceOp::sum));
        both.arrive_and_wait();
        if (d == 1) works.back().wait();
        device->reserve_lanes(1);
        for (const Work& work : works) work.wait();
        EXPECT_EQ(data.back().back(), static_cast<float>(2 * world->size()));
      }
    });
  }
}

TEST(MpiRanks, ForcedAlgorithmsAreRefused) {
  std::vector<float> one(1);
  EXPECT_THAT(
      error_of([&] { world->all_reduce(lend_all(one), ReduceOp::sum, {.algorithm = "ring"}); }),
      testing::HasSubstr("the engine mpi has algorithms of its own"));
  EXPECT_TRUE(world->explain(Collective::all_reduce, 1000).empty());
  EXPECT_EQ(world->algorithm_for(Collective::all_reduce, 1000), "mpi");
}

TEST(MpiRanks, WhatMpiLacksIsRefused) {
  Job job = Job::from_environment();
  EXPECT_THAT(error_of([&] {
                Communicator::connect(job,
                                      {.engine = "mpi", .failure_domain = FailureDomain::pair});
              }),
              testing::HasSubstr("parameter servers"));
  job.encryption = true;
  EXPECT_THAT(error_of([&] { Communicator::connect(job, {.engine = "mpi"}); }),
              testing::HasSubstr("encryption"));
  EXPECT_THAT(error_of([&] { Communicator::connect(job, {.engine = "nccl"}); }),
              testing::HasSubstr("use own or mpi here"));
}

TEST(MpiRanks, OptionsThatMpiWouldIgnoreAreRefused) {
  std::map<std::string, std::string, std::less<>> variables;
  CommunicatorOptions options{.engine = "mpi"};
  options.environment = [&](std::string_view name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  };
  const auto expect_refused = [&](const Job& job, const char* what) {
    SCOPED_TRACE(what);
    EXPECT_THAT(error_of([&] { Communicator::connect(job, options); }),
                testing::HasSubstr(std::string("engine mpi has no ") + what));
  };
  const Job job = Job::from_environment();
  const auto changed = [&](const std::function<void(Job&)>& change) {
    Job other = job;
    change(other);
    return other;
  };
  expect_refused(changed([](Job& other) { other.port = 5123; }), "port");
  expect_refused(changed([](Job& other) { other.shared_memory = false; }), "switch for shared");
  variables = {{"GRADWIRE_INTERFACE", "eth0"}};
  expect_refused(changed([](Job& other) { other.interface = "eth0"; }), "choice of network cards");
  variables["UCX_NET_DEVICES"] = "eth0";
  expect_refused(changed([](Job& other) { other.interface = "eth1"; }), "choice of network cards");
  variables = {{"GRADWIRE_TOPOLOGY", "/a"}};
  expect_refused(job, "use for a topology");
  variables.clear();
  options.topology = "/a";
  expect_refused(job, "use for a topology");
  options.topology.clear();
  options.dead_peer_timeout = std::chrono::seconds(1);
  expect_refused(job, "dead_peer_timeout");
}

/// Rank 0 waits for an operation that the others never start: its timeout must end the job. They
/// wait longer, for a message. Returns only if it does not. `after`: the time from rank 0's post to
/// its wait; long enough, the progress thread has begun the operation.
int wait_in_vain(bool waits_at_once, Duration after = Duration::zero()) {
  std::vector<float> data(1000);
  if (world->rank() == 0) {
    const Work work = world->all_reduce(
        lend_all(data), ReduceOp::sum,
        {.waits_at_once = waits_at_once, .timeout = std::chrono::milliseconds(200)});
    std::promise<void>().get_future().wait_for(after);
    work.wait();
  } else {
    world->recv(lend_all(data), 0).wait();
  }
  return EXIT_SUCCESS;
}

/// The last rank dies while the others wait for it.
int die() {
  std::vector<float> data(1000);
  if (world->rank() == world->size() - 1) std::raise(SIGKILL);
  world->recv(lend_all(data), world->size() - 1).wait();
  return EXIT_SUCCESS;
}

/// Rank 0 sends another number of elements than rank 1 expects. Rank 1 would go on after the error.
int receive_another_size(std::size_t sent) {
  std::vector<float> data(world->rank() == 0 ? sent : 10);
  if (world->rank() == 0) {
    world->send(lend_all(data), 1).wait();
  } else {
    error_of([&] { world->recv(lend_all(data), 0).wait(); });
  }
  world->barrier().wait();
  return EXIT_SUCCESS;
}

}  // namespace
}  // namespace gradwire::test

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  namespace test = gradwire::test;
  test::world =
      gradwire::Communicator::connect(gradwire::Job::from_environment(), {.engine = "mpi"});
  const std::string mode = argc > 1 ? argv[1] : "";
  if (mode == "late" || mode == "late-blocking") return test::wait_in_vain(mode != "late");
  if (mode == "late-left") return test::wait_in_vain(true, std::chrono::milliseconds(100));
  if (mode == "die") return test::die();
  const int failed = mode == "more"    ? test::receive_another_size(20)
                     : mode == "fewer" ? test::receive_another_size(5)
                                       : RUN_ALL_TESTS();
  test::world.reset();
  return failed;
}
