#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/torch/staged_group.h"

namespace gradwire::test {
namespace {

constexpr int kStagedRanks = 3;

/// Computes tensors from host tensors, or from the same ones on a device; results must be equal.
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

}  // namespace
}  // namespace gradwire::test
