#include "gradwire/torch/staged_process_group.h"

#include <atomic>
#include <future>

#include <c10/core/StreamGuard.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "tests/torch/error_of.h"
#include "tests/torch/loopback.h"
#include "tests/torch/queue_device.h"

namespace gradwire::test {
namespace {

using ::testing::HasSubstr;
using Tensors = std::vector<at::Tensor>;
using Group = c10::intrusive_ptr<StagedProcessGroup>;

constexpr std::size_t kSegment = 1024;  ///< Bytes: several for small tensors.
constexpr int kStagedRanks = 3;

/// Each rank has a device of its own.
void run_staged(int ranks, const std::function<void(const Group&)>& body) {
  install_queue_device();
  run_on_loopback(ranks, [&](const auto& group) {
    const auto staged =
        c10::make_intrusive<StagedProcessGroup>(communicator_of(*group), nullptr, kSegment);
    to_queue_device(at::empty({0}), staged->getRank());  // Makes it current.
    body(staged);
  });
}

at::Tensor values(int rank, std::int64_t count, at::ScalarType type = at::kFloat) {
  return (at::arange(count, at::kLong) * 7 + rank * 5).remainder(11).to(type);
}

/// What a body makes of host tensors, and of the same ones on a device, which must be equal.
using Body = std::function<Tensors(c10d::Backend&, const std::function<at::Tensor(at::Tensor)>&)>;

void expect_same(const Group& group, const char* what, const Body& body) {
  const Tensors on_cpu = body(*group, [](const at::Tensor& tensor) { return tensor.clone(); });
  const Tensors staged = body(
      *group, [&](const at::Tensor& tensor) { return to_queue_device(tensor, group->getRank()); });
  ASSERT_EQ(on_cpu.size(), staged.size());
  for (std::size_t i = 0; i < on_cpu.size(); ++i) {
    ASSERT_FALSE(staged[i].is_cpu());
    EXPECT_TRUE(to_host(staged[i]).equal(on_cpu[i])) << what << " " << i;
  }
}

const std::vector<std::int64_t> kCounts{0, 1, 255, 256, 257, 5000};

TEST(StagedProcessGroup, ReductionsAreThoseOfTheCpu) {
  run_staged(kStagedRanks, [](const Group& group) {
    const int rank = group->getRank();
    for (const std::int64_t count : kCounts) {
      expect_same(group, "all_reduce", [&](auto& backend, const auto& on) {
        Tensors sum{on(values(rank, count))};
        backend.allreduce(sum, {})->wait();
        Tensors mean{on(values(rank, count, at::kInt))};
        c10d::AllreduceOptions options;
        options.reduceOp = c10d::ReduceOp::MAX;
        backend.allreduce(mean, options)->wait();
        Tensors both{on(values(rank, count)), on(values(rank, 3, at::kLong))};
        backend.allreduce_coalesced(both, {})->wait();
        return Tensors{sum[0], mean[0], both[0], both[1]};
      });
      expect_same(group, "reduce", [&](auto& backend, const auto& on) {
        Tensors sum{on(values(rank, count))};
        c10d::ReduceOptions options;
        options.rootRank = 1;
        backend.reduce(sum, options)->wait();
        return sum;
      });
      expect_same(group, "reduce_scatter", [&](auto& backend, const auto& on) {
        Tensors list;
        for (int r = 0; r < kStagedRanks; ++r) list.push_back(on(values(rank + r, count + r)));
        Tensors lists{on(values(0, count + rank))};
        std::vector<Tensors> inputs{list};
        backend.reduce_scatter(lists, inputs, {})->wait();
        auto whole = on(values(rank, kStagedRanks * count));
        auto part = on(values(9, count));
        backend._reduce_scatter_base(part, whole, {})->wait();
        Tensors parts{on(values(9, count)), on(values(9, 2))};
        Tensors wholes{whole, on(values(rank, kStagedRanks * 2))};
        backend.reduce_scatter_tensor_coalesced(parts, wholes, {})->wait();
        return Tensors{lists[0], part, whole, parts[0], parts[1]};
      });
    }
  });
}

TEST(StagedProcessGroup, MovementsAreThoseOfTheCpu) {
  run_staged(kStagedRanks, [](const Group& group) {
    const int rank = group->getRank();
    for (const std::int64_t count : kCounts) {
      for (const auto type : {at::kFloat, at::kBool, at::kDouble}) {
        expect_same(group, "broadcast", [&](auto& backend, const auto& on) {
          Tensors data{on(values(rank, count, type))};
          c10d::BroadcastOptions options;
          options.rootRank = 2;
          backend.broadcast(data, options)->wait();
          return data;
        });
        expect_same(group, "all_gather", [&](auto& backend, const auto& on) {
          Tensors inputs{on(values(rank, count, type))};
          std::vector<Tensors> lists(1);
          for (int r = 0; r < kStagedRanks; ++r) lists[0].push_back(on(values(9, count, type)));
          backend.allgather(lists, inputs, {})->wait();
          auto whole = on(values(9, kStagedRanks * count, type));
          backend._allgather_base(whole, inputs[0], {})->wait();
          Tensors wholes{on(values(9, kStagedRanks * count, type))};
          backend.allgather_into_tensor_coalesced(wholes, inputs, {})->wait();
          lists[0].push_back(whole);
          lists[0].push_back(wholes[0]);
          return lists[0];
        });
      }
      expect_same(group, "all_gather_coalesced", [&](auto& backend, const auto& on) {
        Tensors inputs{on(values(rank, count)), on(values(rank, 2, at::kLong))};
        std::vector<Tensors> lists;
        for (int r = 0; r < kStagedRanks; ++r) {
          lists.push_back({on(values(9, count)), on(values(9, 2, at::kLong))});
        }
        backend.allgather_coalesced(lists, inputs, {})->wait();
        return Tensors{lists[0][0], lists[1][1], lists[2][0], lists[2][1]};
      });
      expect_same(group, "gather and scatter", [&](auto& backend, const auto& on) {
        Tensors mine{on(values(rank, count))};
        Tensors list;
        for (int r = 0; r < kStagedRanks; ++r) list.push_back(on(values(9, count)));
        std::vector<Tensors> lists(rank == 1 ? 1 : 0, list);
        c10d::GatherOptions gather;
        gather.rootRank = 1;
        backend.gather(lists, mine, gather)->wait();
        Tensors back{on(values(9, count))};
        c10d::ScatterOptions scatter;
        scatter.rootRank = 1;
        backend.scatter(back, lists, scatter)->wait();
        return Tensors{list[0], list[2], back[0]};
      });
    }
  });
}

TEST(StagedProcessGroup, ExchangesAreThoseOfTheCpu) {
  run_staged(kStagedRanks, [](const Group& group) {
    const int rank = group->getRank();
    for (const std::int64_t count : kCounts) {
      expect_same(group, "all_to_all", [&](auto& backend, const auto& on) {
        Tensors inputs;
        Tensors outputs;
        for (int r = 0; r < kStagedRanks; ++r) {
          inputs.push_back(on(values(rank, count + rank + 2 * r)));
          outputs.push_back(on(values(9, count + r + 2 * rank)));
        }
        backend.alltoall(outputs, inputs, {})->wait();
        auto input = on(values(rank, kStagedRanks * count).view({kStagedRanks, count}));
        auto output = on(values(9, kStagedRanks * count).view({kStagedRanks, count}));
        std::vector<std::int64_t> none;
        backend.alltoall_base(output, input, none, none, {})->wait();
        std::vector<std::int64_t> sent{1, 0, 2};
        std::vector<std::int64_t> expected(kStagedRanks, sent[static_cast<std::size_t>(rank)]);
        auto some = on(values(9, 3 * sent[static_cast<std::size_t>(rank)] * count));
        some = some.view({-1, std::max<std::int64_t>(count, 1)});
        if (count > 0) backend.alltoall_base(some, input, expected, sent, {})->wait();
        outputs.push_back(output);
        outputs.push_back(some);
        return outputs;
      });
      expect_same(group, "messages", [&](auto& backend, const auto& on) {
        Tensors sent{on(values(rank, count))};
        Tensors received{on(values(9, count))};
        backend.startCoalescing();
        backend.send(sent, (rank + 1) % kStagedRanks, 4);
        backend.recv(received, (rank + 2) % kStagedRanks, 4);
        backend.endCoalescing()->wait();
        if (rank == 0) {
          auto work = backend.recvAnysource(sent, 5);
          work->wait();
          EXPECT_EQ(work->sourceRank(), 1);
        } else if (rank == 1) {
          backend.send(sent, 0, 5)->wait();
        }
        return Tensors{sent[0], received[0]};
      });
    }
  });
}

/// From now on, on all devices; never at copies that ranks themselves make before or after.
void look_at_copies(const Group& group, const std::function<void(const DeviceCopy&)>& action) {
  group->barrier({})->wait();
  if (group->getRank() == 0) before_copies(action);
  group->barrier({})->wait();
}

TEST(StagedProcessGroup, BeginsWhenTheCallersStreamHasComeSoFar) {
  std::promise<void> release;
  const auto released = release.get_future().share();
  std::atomic<int> too_early = 0;
  run_staged(2, [&](const Group& group) {
    const int rank = group->getRank();
    auto data = to_queue_device(at::zeros({1000}), rank);
    look_at_copies(group, [&](const DeviceCopy&) {
      too_early += released.wait_for(std::chrono::seconds(0)) != std::future_status::ready;
    });
    compute([&, data] {
      released.wait();
      memory_of(data).fill_(rank + 1);
    });
    Tensors tensors{data};
    const auto work = group->allreduce(tensors, {});  // Does not wait for the stream.
    if (rank == 0) release.set_value();
    work->wait();
    EXPECT_TRUE(to_host(data).eq(3).all().item<bool>());
  });
  before_copies(nullptr);
  EXPECT_EQ(too_early, 0);
}

TEST(StagedProcessGroup, WaitHoldsTheCurrentStreamAndNotTheHost) {
  std::promise<void> release;
  const auto released = release.get_future().share();
  std::atomic<int> waited = 0;
  run_staged(2, [&](const Group& group) {
    const int rank = group->getRank();
    auto data = to_queue_device(at::full({1000}, rank + 1), rank);
    look_at_copies(group, [&](const DeviceCopy& copy) {
      if (copy.to_device) released.wait();
    });
    Tensors tensors{data};
    group->allreduce(tensors, {})->wait();  // Copies back are held: the host goes on all the same.
    compute([&, data] { EXPECT_TRUE(memory_of(data).eq(3).all().item<bool>()); });
    if (++waited == 2) release.set_value();
    EXPECT_TRUE(to_host(data).eq(3).all().item<bool>());
  });
  before_copies(nullptr);
}

TEST(StagedProcessGroup, OverlapsCopiesToFromAndTheNetwork) {
  // The last segment leaves the device of rank 0 only after the first has come back to it.
  constexpr std::size_t kSegments = 8;
  std::promise<void> first_is_back;
  const auto back = first_is_back.get_future().share();
  std::atomic<std::size_t> left = 0;
  std::atomic<bool> seen = false;
  std::atomic<bool> overlapped = false;
  std::atomic<int> unpinned = 0;
  run_staged(2, [&](const Group& group) {
    auto data = to_queue_device(at::ones({kSegments * kSegment / 4}), group->getRank());
    look_at_copies(group, [&](const DeviceCopy& copy) {
      EXPECT_EQ(copy.bytes, kSegment);
      unpinned += !copy.pinned || !copy.asynchronous;
      if (copy.to_device && !seen.exchange(true)) first_is_back.set_value();
      if (!copy.to_device && copy.device == 0 && ++left == kSegments) {
        overlapped = back.wait_for(std::chrono::seconds(20)) == std::future_status::ready;
      }
    });
    Tensors tensors{data};
    group->allreduce(tensors, {})->wait();
    look_at_copies(group, nullptr);
    EXPECT_TRUE(to_host(data).eq(2).all().item<bool>());
  });
  EXPECT_TRUE(overlapped);
  EXPECT_EQ(unpinned, 0);
}

TEST(StagedProcessGroup, ResultsDoNotOverwriteWhatTheStreamStillReads) {
  std::promise<void> release;
  const auto released = release.get_future().share();
  run_staged(2, [&](const Group& group) {
    Tensors data{to_queue_device(at::full({10}, group->getRank()), group->getRank())};
    if (group->getRank() == 0) {
      group->send(data, 1, 0)->wait();
      group->barrier({})->wait();
      return;
    }
    compute([&, tensor = data[0]] {
      released.wait();
      EXPECT_TRUE(memory_of(tensor).eq(1).all().item<bool>());
    });
    group->recv(data, 0, 0)->wait();  // The message is on the host.
    group->barrier({})->wait();
    release.set_value();
    EXPECT_TRUE(to_host(data[0]).eq(0).all().item<bool>());
  });
}

TEST(StagedProcessGroup, CallbacksSeeResultsAndMayCommunicate) {
  run_staged(2, [](const Group& group) {
    Tensors data{to_queue_device(at::ones({1000}), group->getRank())};
    const auto again = group->allreduce(data, {})->getFuture()->then(
        [&](c10::ivalue::Future& future) {
          auto tensors = future.value().toTensorVector();
          EXPECT_TRUE(to_host(tensors[0]).eq(2).all().item<bool>());
          group->allreduce(tensors, {})->wait();
          return c10::IValue(to_host(tensors[0]));
        },
        c10::TensorType::get());
    again->waitAndThrow();
    EXPECT_TRUE(again->value().toTensor().eq(4).all().item<bool>());
    const auto work = group->allreduce(data, {});
    work->getFutureResult()->wait();
    EXPECT_TRUE(work->isCompleted() && work->isSuccess());
    work->getFuture()->wait();  // One that is asked for when all is over.
    EXPECT_TRUE(to_host(work->result()[0]).eq(8).all().item<bool>());
  });
}

TEST(StagedProcessGroup, RefusesWhatItCannotStage) {
  run_staged(1, [](const Group& group) {
    const auto all_reduce = [&](const at::Tensor& tensor) {
      Tensors tensors{tensor};
      return error_of([&] { group->allreduce(tensors, {})->wait(); });
    };
    const auto data = to_queue_device(at::ones({4, 6}), 0);
    EXPECT_THAT(all_reduce(data.t()), HasSubstr("rank 0: all_reduce, argument 'tensors': a tensor "
                                                "is not contiguous"));
    auto output = at::ones({24});
    auto input = data;
    EXPECT_THAT(error_of([&] { group->_allgather_base(output, input, {}); }),
                HasSubstr("has tensors on queue:0 and on cpu"));
    auto short_output = to_queue_device(at::ones({5}), 0);
    EXPECT_THAT(error_of([&] { group->_allgather_base(short_output, input, {})->wait(); }),
                HasSubstr("5 elements of Float are not 1 times 24"));
    EXPECT_TRUE(to_host(short_output).eq(1).all().item<bool>());
    c10d::AllreduceOptions bits;
    bits.reduceOp = c10d::ReduceOp::BAND;
    Tensors floats{data};
    const auto work = group->allreduce(floats, bits);
    EXPECT_THAT(error_of([&] { work->wait(); }), HasSubstr("type Float with ReduceOp.BAND"));
    EXPECT_FALSE(work->isSuccess());
    EXPECT_THAT(error_of([&] { work->getFuture()->waitAndThrow(); }), HasSubstr("BAND"));
    set_capturing(true);
    EXPECT_THAT(all_reduce(data), HasSubstr("cannot be captured"));
    set_capturing(false);
    set_out_of_memory(true);
    EXPECT_THAT(all_reduce(data), HasSubstr("no pinned memory is left"));
    set_out_of_memory(false);
    EXPECT_EQ(all_reduce(data), "no error");
    group->shutdown();
    EXPECT_THAT(all_reduce(data), HasSubstr("has been shut down"));
  });
}

TEST(StagedProcessGroup, AFailedOperationLeavesTheDeviceAsItWas) {
  run_staged(2, [](const Group& group) {
    Tensors data{to_queue_device(at::full({1000}, 5), group->getRank())};
    if (group->getRank() == 1) {
      group->abort();
      return;
    }
    EXPECT_THAT(error_of([&] { group->allreduce(data, {})->wait(); }), HasSubstr("rank 1 aborted"));
    EXPECT_TRUE(to_host(data[0]).eq(5).all().item<bool>());
  });
}

TEST(StagedProcessGroup, WhatIsUnderWayAtShutdownFails) {
  run_staged(2, [](const Group& group) {
    Tensors data{to_queue_device(at::ones({10}), group->getRank())};
    if (group->getRank() == 0) {
      const auto work = group->recv(data, 1, 0);
      group->shutdown();
      EXPECT_NE(error_of([&] { work->wait(); }), "no error");
    }
  });
}

TEST(StagedProcessGroup, IsTheAcceleratorsBackendOfAGroup) {
  install_queue_device();
  run_on_loopback(2, [](const auto& group) {
    Tensors tensors{to_queue_device(at::ones({10}), group->getRank())};
    group->allreduce(tensors)->wait();
    EXPECT_TRUE(to_host(tensors[0]).eq(2).all().template item<bool>());
    const auto store = c10::make_intrusive<c10d::PrefixStore>("half", group->getStore());
    const auto half = group->getBackend(at::kPrivateUse1)->split(store, {0, 1}, nullptr);
    half->allreduce(tensors)->wait();
    EXPECT_TRUE(to_host(tensors[0]).eq(4).all().template item<bool>());
    half->shutdown();
  });
}

}  // namespace
}  // namespace gradwire::test
