#include "gradwire/torch/process_group.h"

#include <algorithm>
#include <atomic>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "gradwire/base/error.h"
#include "gradwire/torch/init.h"
#include "tests/support/error_of.h"
#include "tests/support/torch/loopback.h"

namespace gradwire::test {
namespace {

using ::testing::HasSubstr;
using Tensors = std::vector<at::Tensor>;

constexpr int kRanks = 3;

TEST(ProcessGroup, ReducesEveryTypeWithEveryOperation) {
  run_on_loopback(kRanks, [](const auto& group) {
    for (const auto type : {torch::kFloat32, torch::kFloat64, torch::kBFloat16, torch::kFloat16,
                            torch::kInt32, torch::kInt64, torch::kUInt8, torch::kInt16}) {
      const auto expect = [&](c10d::ReduceOp::RedOpType op, double expected) {
        Tensors tensors{torch::full({5, 2}, 3 * (group->getRank() + 1), type)};
        c10d::AllreduceOptions options;
        options.reduceOp = op;
        group->allreduce(tensors, options)->wait();
        EXPECT_TRUE(tensors[0].equal(torch::full({5, 2}, expected, type)))
            << torch::toString(type) << " " << int{op} << "\n"
            << tensors[0];
      };
      expect(c10d::ReduceOp::SUM, 18);
      expect(c10d::ReduceOp::AVG, 6);
      expect(c10d::ReduceOp::MIN, 3);
      expect(c10d::ReduceOp::MAX, 9);
      expect(c10d::ReduceOp::PRODUCT, 162);
    }
  });
}

TEST(ProcessGroup, BroadcastsAnyTypeFromAnyRoot) {
  run_on_loopback(kRanks, [](const auto& group) {
    for (int root = 0; root < kRanks; ++root) {
      c10d::BroadcastOptions options;
      options.rootRank = root;
      Tensors flags{torch::full({7}, group->getRank() == root, torch::kBool)};
      group->broadcast(flags, options)->wait();
      EXPECT_TRUE(flags[0].all().template item<bool>());
      Tensors numbers{torch::full({2}, group->getRank(), torch::kInt16)};
      group->broadcast(numbers, options)->wait();
      EXPECT_TRUE(numbers[0].eq(root).all().template item<bool>());
    }
    group->barrier()->wait();
  });
}

TEST(ProcessGroup, GathersIntoListsAndIntoOneTensor) {
  run_on_loopback(kRanks, [](const auto& group) {
    auto mine = torch::full({2, 2}, group->getRank(), torch::kFloat32);
    std::vector<Tensors> lists(1);
    for (int r = 0; r < kRanks; ++r) lists[0].push_back(torch::empty({2, 2}));
    Tensors inputs{mine};
    group->allgather(lists, inputs)->wait();
    auto whole = torch::empty({kRanks, 2, 2});
    group->all_gather_single(whole, mine)->wait();
    for (int r = 0; r < kRanks; ++r) {
      EXPECT_TRUE(lists[0][static_cast<std::size_t>(r)].eq(r).all().template item<bool>());
      EXPECT_TRUE(whole[r].eq(r).all().template item<bool>());
    }
  });
}

TEST(ProcessGroup, ScattersReductions) {
  run_on_loopback(kRanks, [](const auto& group) {
    auto input = torch::arange(kRanks * 2, torch::kInt64) * (group->getRank() + 1);
    const auto expected = torch::arange(2, torch::kInt64).add(2 * group->getRank()).mul(6);
    auto whole = torch::empty({2}, torch::kInt64);
    group->reduce_scatter_single(whole, input)->wait();
    EXPECT_TRUE(whole.equal(expected));
    Tensors outputs{torch::empty({2}, torch::kInt64)};
    std::vector<Tensors> inputs{input.chunk(kRanks)};
    group->reduce_scatter(outputs, inputs)->wait();
    EXPECT_TRUE(outputs[0].equal(expected));
  });
}

TEST(ProcessGroup, CoalescedReductionsAreSeveral) {
  run_on_loopback(kRanks, [](const auto& group) {
    Tensors tensors{torch::ones({4}), torch::ones({2}, torch::kFloat64)};
    group->allreduce_coalesced(tensors)->wait();
    EXPECT_TRUE(tensors[0].eq(kRanks).all().template item<bool>());
    EXPECT_TRUE(tensors[1].eq(kRanks).all().template item<bool>());
  });
}

/// Small tensors of three types, empty ones and one that is too large to be packed.
Tensors assorted(int rank) {
  Tensors all;
  for (int i = 0; i < 60; ++i) {
    const auto type = i % 3 == 0 ? torch::kFloat32 : i % 3 == 1 ? torch::kInt64 : torch::kFloat64;
    const int size = i == 30 ? 100'000 : 7 * i % 11;
    all.push_back((torch::arange(size) + i * (rank + 1)).to(type));
  }
  return all;
}

TEST(ProcessGroup, CoalescesAnyTypesAndSizes) {
  run_on_loopback(kRanks, [](const auto& group) {
    Tensors inputs = assorted(group->getRank());
    std::vector<Tensors> outputs;
    for (int rank = 0; rank < kRanks; ++rank) {
      Tensors& of_rank = outputs.emplace_back();
      for (const auto& input : inputs) of_rank.push_back(torch::empty_like(input));
    }
    group->allgather_coalesced(outputs, inputs)->wait();
    Tensors sums = assorted(0);
    for (int rank = 0; rank < kRanks; ++rank) {
      const Tensors expected = assorted(rank);
      for (std::size_t i = 0; i < expected.size(); ++i) {
        EXPECT_TRUE(outputs[static_cast<std::size_t>(rank)][i].equal(expected[i])) << i;
        if (rank > 0) sums[i] += expected[i];
      }
    }
    group->allreduce_coalesced(inputs)->wait();
    for (std::size_t i = 0; i < sums.size(); ++i) EXPECT_TRUE(inputs[i].equal(sums[i])) << i;
  });
}

TEST(ProcessGroup, CoalescedListsOfOtherSizesAreAnError) {
  run_on_loopback(2, [](const auto& group) {
    const int rank = group->getRank();
    Tensors tensors{torch::ones({2 + rank}), torch::ones({3 - rank})};
    EXPECT_THAT(error_of([&] { group->allreduce_coalesced(tensors)->wait(); }),
                HasSubstr("all_reduce of 5 float32 in layout "));
  });
}

TEST(GroupOptions, ACopyHasAllOptions) {
  GroupOptions options(std::chrono::milliseconds(1234));
  options.codec = "int8";
  options.port = 4321;
  options.communicator.algorithm = "ring";
  const auto copied = options.clone();
  const auto* copy = dynamic_cast<const GroupOptions*>(copied.get());
  ASSERT_NE(copy, nullptr);
  EXPECT_EQ(copy->timeout, options.timeout);
  EXPECT_EQ(copy->codec, "int8");
  EXPECT_EQ(copy->port, 4321);
  EXPECT_EQ(copy->communicator.algorithm, "ring");
}

TEST(ProcessGroup, SendsAndReceivesByTag) {
  run_on_loopback(2, [](const auto& group) {
    if (group->getRank() == 0) {
      Tensors first{torch::tensor({1.0})};
      Tensors second{torch::tensor({2.0})};
      group->send(first, 1, 10)->wait();
      group->send(second, 1, 20)->wait();
    } else {
      Tensors first{torch::zeros({1})};
      Tensors second{torch::zeros({1})};
      auto later = group->recv(second, 0, 20);
      group->recv(first, 0, 10)->wait();
      later->wait();
      EXPECT_EQ(first[0].template item<double>(), 1);
      EXPECT_EQ(second[0].template item<double>(), 2);
    }
    group->barrier()->wait();
  });
}

TEST(ProcessGroup, FuturesCompleteWithTheResult) {
  run_on_loopback(2, [](const auto& group) {
    Tensors tensors{torch::ones({3})};
    auto work = group->allreduce(tensors);
    auto future = work->getFuture();
    future->wait();
    EXPECT_TRUE(future->value().toTensorVector()[0].eq(2).all().template item<bool>());
    EXPECT_TRUE(work->isCompleted());
    EXPECT_TRUE(work->isSuccess());
  });
}

TEST(ProcessGroup, CallbacksMayCommunicateAndWait) {
  run_on_loopback(2, [](const auto& group) {
    Tensors tensors{torch::ones({3})};
    const auto squared = group->allreduce(tensors)->getFuture()->then(
        [group](c10::ivalue::Future& future) {
          auto again = future.value().toTensorVector();
          group->allreduce(again)->getFuture()->waitAndThrow();
          return c10::IValue(again);
        },
        c10::ListType::ofTensors());
    squared->waitAndThrow();
    EXPECT_TRUE(tensors[0].eq(4).all().template item<bool>());
  });
}

TEST(ProcessGroup, SplitsIntoGroups) {
  run_on_loopback(3, [](const auto& group) {
    const auto backend = group->getBackend(c10::DeviceType::CPU);
    const auto store = c10::make_intrusive<c10d::PrefixStore>("half", group->getStore());
    const auto half = backend->split(store, {0, 2}, nullptr);
    ASSERT_EQ(half == nullptr, group->getRank() == 1);
    if (!half) return;
    EXPECT_EQ(half->getRank(), group->getRank() / 2);
    Tensors tensors{torch::full({2}, group->getRank())};
    half->allreduce(tensors)->wait();
    EXPECT_TRUE(tensors[0].eq(2).all().template item<bool>());
  });
}

TEST(ProcessGroup, CoalescedOperationsAreOneWork) {
  run_on_loopback(2, [](const auto& group) {
    const auto backend = group->getBackend(c10::DeviceType::CPU);
    Tensors sent{torch::full({4}, group->getRank())};
    Tensors received{torch::full({4}, 9)};
    backend->startCoalescing();
    backend->send(sent, 1 - group->getRank(), 0);
    backend->recv(received, 1 - group->getRank(), 0);
    backend->endCoalescing()->wait();
    EXPECT_TRUE(received[0].eq(1 - group->getRank()).all().template item<bool>());
  });
}

TEST(ProcessGroup, CoalescesTheOperationsOfOneThread) {
  run_on_loopback(2, [](const auto& group) {
    const auto backend = group->getBackend(c10::DeviceType::CPU);
    const int peer = 1 - group->getRank();
    Tensors theirs{torch::zeros({4})};
    Tensors ours{torch::ones({4})};
    c10::intrusive_ptr<c10d::Work> received;
    backend->startCoalescing();
    std::thread([&] { received = backend->recv(theirs, peer, 1); }).join();
    backend->allreduce(ours);
    backend->endCoalescing()->wait();  // The message has not been sent yet.
    EXPECT_TRUE(ours[0].eq(2).all().template item<bool>());
    backend->send(ours, peer, 1)->wait();
    received->wait();
    EXPECT_TRUE(theirs[0].eq(2).all().template item<bool>());
  });
}

TEST(ProcessGroup, CoalescingThatNobodyEndsKeepsNoTensors) {
  run_on_loopback(2, [](const auto& group) {
    const auto backend = group->getBackend(c10::DeviceType::CPU);
    std::vector<c10::weak_intrusive_ptr<at::TensorImpl>> made;
    backend->startCoalescing();  // After an exception PyTorch does not end it.
    for (int i = 0; i < 1000; ++i) {
      Tensors tensors{torch::ones({4})};
      made.emplace_back(tensors[0].getIntrusivePtr());
      backend->allreduce(tensors)->wait();
    }
    const auto alive =
        std::ranges::count_if(made, [](const auto& tensor) { return !tensor.expired(); });
    EXPECT_LT(alive, 100);
    Tensors tensors{torch::ones({4})};
    backend->startCoalescing();
    backend->allreduce(tensors);
    backend->endCoalescing()->wait();
    EXPECT_TRUE(tensors[0].eq(2).all().template item<bool>());
  });
}

TEST(ProcessGroup, LeavesTensorsAsTheyWereWhereItHasBeenShutDown) {
  run_on_loopback(1, [](const auto& group) {
    const auto backend = group->getBackend(c10::DeviceType::CPU);
    Tensors halves{torch::ones({4}, torch::kHalf), torch::ones({4}, torch::kHalf)};
    backend->shutdown();
    c10d::AllreduceOptions options;
    options.reduceOp = c10d::makePreMulSum(0.5);
    Tensors one{halves[0]};
    EXPECT_THAT(error_of([&] { backend->allreduce(one, options); }), HasSubstr("shut down"));
    c10d::AllreduceCoalescedOptions together;
    together.reduceOp = options.reduceOp;
    EXPECT_THAT(error_of([&] { backend->allreduce_coalesced(halves, together); }),
                HasSubstr("shut down"));
    c10d::ReduceOptions to_root;
    to_root.reduceOp = options.reduceOp;
    EXPECT_THAT(error_of([&] { backend->reduce(one, to_root); }), HasSubstr("shut down"));
    EXPECT_TRUE(halves[0].eq(1).all().template item<bool>());
    EXPECT_TRUE(halves[1].eq(1).all().template item<bool>());
  });
}

TEST(ProcessGroup, KeepsTensorsAliveUntilDone) {
  run_on_loopback(2, [](const auto& group) {
    c10::intrusive_ptr<c10d::Work> work;
    {
      Tensors tensors{torch::ones({100000})};
      work = group->allreduce(tensors);
    }
    work->wait();
    EXPECT_TRUE(work->result()[0].eq(2).all().template item<bool>());
  });
}

TEST(ProcessGroup, RefusesWhatItCannotSendAndSaysWhy) {
  run_on_loopback(1, [](const auto& group) {
    const auto reduce = [&](const at::Tensor& tensor) {
      Tensors tensors{tensor};
      return error_of([&] { group->allreduce(tensors)->wait(); });
    };
    EXPECT_THAT(reduce(torch::ones({2, 1}).expand({2, 3})),
                HasSubstr("rank 0: all_reduce, argument 'tensors[0]': several elements of the "
                          "tensor share memory"));
    EXPECT_THAT(reduce(torch::ones({2}).to(torch::kFloat8_e4m3fn)),
                HasSubstr("cannot reduce elements of type Float8_e4m3fn with ReduceOp.SUM"));
    const auto backend = group->getBackend(c10::DeviceType::CPU);
    Tensors sparse{torch::eye(2).to_sparse()};
    EXPECT_THAT(error_of([&] { backend->broadcast(sparse); }), HasSubstr("to_dense()"));
    Tensors meta{torch::ones({2}, torch::kMeta)};
    EXPECT_THAT(error_of([&] { backend->allreduce(meta); }), HasSubstr("on meta"));
    Tensors two{torch::ones({1}), torch::ones({2})};
    EXPECT_THAT(error_of([&] { backend->allreduce(two); }), HasSubstr("one size and type"));
    EXPECT_THAT(error_of([&] { backend->reduce(two); }), HasSubstr("must have one tensor"));
    c10d::AllreduceOptions bits;
    bits.reduceOp = c10d::ReduceOp::BAND;
    Tensors one{torch::ones({1})};
    EXPECT_THAT(error_of([&] { backend->allreduce(one, bits); }),
                HasSubstr("type Float with ReduceOp.BAND; use SUM, AVG"));
    auto whole = torch::ones({3});
    auto part = torch::ones({2});
    EXPECT_THAT(error_of([&] { group->all_gather_single(whole, part); }),
                HasSubstr("3 elements of Float are not 1 times 2"));
  });
}

TEST(ProcessGroup, AbortFailsTheOthers) {
  run_on_loopback(2, [](const auto& group) {
    if (group->getRank() == 1) {
      group->abort();
      return;
    }
    Tensors tensors{torch::ones({3})};
    EXPECT_THAT(error_of([&] { group->allreduce(tensors)->wait(); }),
                HasSubstr("rank 1 aborted its process group"));
  });
}

TEST(ProcessGroup, AbortHooksRunBeforeWaitThrows) {
  run_on_loopback(2, [](const auto& group) {
    auto& backend = dynamic_cast<ProcessGroupGradwire&>(*group->getBackend(c10::kCPU));
    std::atomic<int> calls = 0, removed = 0;
    backend.registerAbortHook(1, [&] { ++calls; });
    backend.registerAbortHook(2, [&] { ++removed; });
    backend.unregisterAbortHook(2);
    Tensors tensors{torch::ones({3})};
    group->allreduce(tensors)->wait();
    EXPECT_EQ(calls, 0);
    if (group->getRank() == 1) {
      group->abort();
    } else {
      EXPECT_THROW(group->allreduce(tensors)->wait(), Exception);
    }
    EXPECT_GE(calls, 1);
    EXPECT_EQ(removed, 0);
    backend.shutdown();  // Its threads may still be calling the hook.
  });
}

TEST(Init, AWorldOfOneNeedsNoLauncher) {
  const auto group = init(bootstrap::Job{});
  EXPECT_EQ(group->getSize(), 1);
  Tensors tensors{torch::full({2}, 4.0)};
  group->allreduce(tensors)->wait();
  EXPECT_TRUE(tensors[0].eq(4).all().item<bool>());
  EXPECT_NE(communicator_of(*group), nullptr);
}

}  // namespace
}  // namespace gradwire::test
