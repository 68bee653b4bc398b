#include <atomic>
#include <future>
#include <thread>

#include <c10/core/StreamGuard.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "gradwire/base/clock.h"
#include "tests/support/error_of.h"
#include "tests/torch/staged_group.h"

namespace gradwire::test {
namespace {

using ::testing::HasSubstr;

/// Calls `action` for all later copies on all devices. The barriers keep the ranks' other copies
/// from overlapping with the change.
void look_at_copies(const Group& group, const std::function<void(const DeviceCopy&)>& action) {
  group->barrier({})->wait();
  if (group->getRank() == 0) before_copies(action);
  group->barrier({})->wait();
}

TEST(StagedProcessGroup, WaitsForTheStreamOfTheCaller) {
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
    group->allreduce(tensors, {})->wait();  // Copies back are held, but the host continues.
    compute([&, data] { EXPECT_TRUE(memory_of(data).eq(3).all().item<bool>()); });
    if (++waited == 2) release.set_value();
    EXPECT_TRUE(to_host(data).eq(3).all().item<bool>());
  });
  before_copies(nullptr);
}

TEST(StagedProcessGroup, OverlapsCopiesToFromAndTheNetwork) {
  // The last segment leaves rank 0's device only after the first has been copied back to it.
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

TEST(StagedProcessGroup, ListsAreCutIntoSegmentsToo) {
  constexpr std::int64_t kCount = 5000;
  std::atomic<std::size_t> copied = 0;
  run_staged(2, [&](const Group& group) {
    const int rank = group->getRank();
    const auto on = [&](int of) { return to_queue_device(values(of, kCount), rank); };
    Tensors own{on(rank)};
    std::vector<Tensors> lists{{on(8), on(9)}};
    std::vector<Tensors> on_root;
    if (rank == 0) on_root = {{on(6), on(7)}};
    look_at_copies(group, [&](const DeviceCopy& copy) {
      EXPECT_LE(copy.bytes, kSegment);
      copied += copy.bytes;
    });
    group->allgather(lists, own, {})->wait();
    group->reduce_scatter(own, lists, {})->wait();
    group->gather(on_root, own, {})->wait();
    group->scatter(own, on_root, {})->wait();
    std::promise<void> all_are_back;
    compute([&] { all_are_back.set_value(); });
    all_are_back.get_future().wait();
    look_at_copies(group, nullptr);
    EXPECT_TRUE(to_host(lists[0][0]).equal(values(0, kCount)));
    EXPECT_TRUE(to_host(lists[0][1]).equal(values(1, kCount)));
    EXPECT_TRUE(to_host(own[0]).equal(2 * values(rank, kCount)));
  });
  // Each rank: 3 tensors for each of the first two; then 2 out, 2 to the root; 2 from it, 2 back.
  EXPECT_EQ(copied, (2 * 3 + 2 * 3 + 4 + 4) * kCount * sizeof(float));
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

TEST(StagedProcessGroup, BarriersWaitForCollectivesAndNotForMessages) {
  run_staged(2, [](const Group& group) {
    const int rank = group->getRank();
    const auto on_device = [&](const at::Tensor& tensor) { return to_queue_device(tensor, rank); };
    Tensors message{on_device(at::full({1'000'000}, rank))};
    c10::intrusive_ptr<c10d::Work> sent;
    if (rank == 0) sent = group->send(message, 1, 0);
    for (int i = 0; i < 10; ++i) {
      Tensors data{on_device(at::full({10 * kSegment}, rank + 1))};
      group->allreduce(data, {});
      group->barrier({})->wait();
      EXPECT_TRUE(to_host(data[0]).eq(3).all().item<bool>()) << "a half-made sum";
    }
    if (rank == 1) group->recv(message, 0, 0)->wait();
    if (rank == 0) sent->wait();
    EXPECT_TRUE(to_host(message[0]).eq(0).all().item<bool>());
  });
}

TEST(StagedProcessGroup, ReleasesTensorsOfCompletedOperations) {
  run_staged(2, [](const Group& group) {
    Tensors data{to_queue_device(at::ones({1000}), group->getRank())};
    const c10::weak_intrusive_ptr<at::TensorImpl> tensor(data[0].getIntrusivePtr());
    group->allreduce(data, {})->wait();
    data.clear();
    // The threads that completed it release it soon after.
    const SteadyClock clock;
    const Time until = clock.now() + std::chrono::seconds(20);
    while (!tensor.expired() && clock.now() < until) std::this_thread::yield();
    EXPECT_TRUE(tensor.expired());
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
    work->getFuture()->wait();  // A future requested after completion.
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
    EXPECT_THAT(all_reduce(at::_neg_view(data)), HasSubstr("lazily conjugated or negated"));
    EXPECT_TRUE(to_host(data).eq(1).all().item<bool>());
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

TEST(StagedProcessGroup, OperationsInFlightFailAtShutdown) {
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
