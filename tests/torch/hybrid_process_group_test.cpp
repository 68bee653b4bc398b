#include "gradwire/torch/hybrid_process_group.h"

#include <future>
#include <map>
#include <mutex>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/error_of.h"
#include "tests/torch/host_backend.h"
#include "tests/torch/staged_group.h"

namespace gradwire::test {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

/// Hosts with the same number of ranks each. Ranks are numbered host by host, or in turn.
struct Cluster {
  int hosts = 2;
  int places = 2;
  bool in_turn = false;

  int ranks() const { return hosts * places; }
  std::string machine(Rank rank) const {
    return "host " + std::to_string(in_turn ? rank % hosts : rank / places);
  }
};

using Hybrid = c10::intrusive_ptr<HybridProcessGroup>;
using InsideOf = std::function<InsideBackends(const HostGrid&)>;

void run_hybrid(const Cluster& cluster, const InsideOf& inside,
                const std::function<void(const Hybrid&)>& body) {
  run_on_loopback(cluster.ranks(), [&](const auto& plain) {
    const HostGrid grid = host_grid(*communicator_of(*plain), cluster.machine(plain->getRank()));
    const auto group = hybrid_group(*plain, grid, inside ? inside(grid) : InsideBackends{});
    body(hybrid_backend_of(*group));
  });
}

/// Backends in memory for each host, by the rank that has them.
class MemoryHosts {
 public:
  explicit MemoryHosts(const Cluster& cluster) : cluster_(cluster) {
    for (int host = 0; host < cluster.hosts; ++host) {
      reductions_.push_back(std::make_shared<Host>(cluster.places));
      gathers_.push_back(std::make_shared<Host>(cluster.places));
    }
  }
  InsideBackends operator()(const HostGrid& grid) {
    const auto place = static_cast<int>(grid.place);
    return {c10::make_intrusive<HostBackend>(reductions_[grid.host], place, cluster_.places),
            c10::make_intrusive<HostBackend>(gathers_[grid.host], place, cluster_.places)};
  }

 private:
  Cluster cluster_;
  std::vector<std::shared_ptr<Host>> reductions_, gathers_;
};

constexpr std::int64_t kOddCount = 50'001;  ///< Not a multiple of any number of ranks here.

at::Tensor reduced(int ranks, const c10d::ReduceOp& op, std::int64_t count, at::ScalarType type) {
  at::Tensor all = values(0, count, type);
  for (int rank = 1; rank < ranks; ++rank) {
    const at::Tensor other = values(rank, count, type);
    all = op == c10d::ReduceOp::MAX ? at::maximum(all, other) : all + other;
  }
  return op == c10d::ReduceOp::AVG ? all / ranks : all;
}

/// Runs the collectives on this device, and compares with what all ranks' values give.
void check_collectives(const Hybrid& group, const std::function<at::Tensor(at::Tensor)>& on) {
  const int ranks = group->getSize(), rank = group->getRank();
  for (const auto type : {at::kFloat, at::kHalf, at::kDouble, at::kLong}) {
    for (const c10d::ReduceOp op :
         {c10d::ReduceOp::SUM, c10d::ReduceOp::AVG, c10d::ReduceOp::MAX}) {
      if (type == at::kLong && op == c10d::ReduceOp::AVG) continue;
      Tensors tensors{on(values(rank, kOddCount, type))};
      c10d::AllreduceOptions options;
      options.reduceOp = op;
      const auto work = group->allreduce(tensors, options);
      work->wait();
      EXPECT_TRUE(at::allclose(to_host(tensors[0]), reduced(ranks, op, kOddCount, type), 1e-3))
          << type << " rank " << rank;
      EXPECT_TRUE(work->result()[0].is_same(tensors[0]));
    }
  }
  constexpr std::int64_t shard = 20'000;
  at::Tensor whole = on(values(rank, shard * ranks)), part = on(at::zeros({shard}));
  group->_reduce_scatter_base(part, whole, {})->wait();
  const at::Tensor sum = reduced(ranks, c10d::ReduceOp::SUM, shard * ranks, at::kFloat);
  EXPECT_TRUE(to_host(part).equal(sum.narrow(0, shard * rank, shard)));
  group->_allgather_base(whole, part, {})->wait();
  EXPECT_TRUE(to_host(whole).equal(sum));
}

TEST(HybridProcessGroup, HasTheResultsOfAllRanks) {
  for (const Cluster& cluster :
       {Cluster{2, 2}, Cluster{3, 2, true}, Cluster{2, 3}, Cluster{1, 3}, Cluster{3, 1}}) {
    const auto same = [](const at::Tensor& tensor) { return tensor; };
    MemoryHosts hosts(cluster);
    run_hybrid(cluster, std::ref(hosts), [&](const Hybrid& group) {
      if (cluster.places == 1) {
        EXPECT_EQ(group, nullptr);
      } else {
        check_collectives(group, same);
      }
    });
    if (cluster.places == 1) continue;
    run_hybrid(cluster, nullptr, [&](const Hybrid& group) { check_collectives(group, same); });
  }
}

TEST(HybridProcessGroup, TakesTensorsOfAnAccelerator) {
  install_queue_device();
  run_hybrid({}, nullptr, [](const Hybrid& group) {
    const int rank = group->getRank();
    to_queue_device(at::empty({0}), rank);  // Makes it current.
    check_collectives(group,
                      [&](const at::Tensor& tensor) { return to_queue_device(tensor, rank); });
  });
}

TEST(HybridProcessGroup, FollowsTheStreamOfTheCaller) {
  install_queue_device();
  std::promise<void> release;
  const auto released = release.get_future().share();
  run_hybrid({}, nullptr, [&](const Hybrid& group) {
    const int rank = group->getRank();
    // An even number: the device's own operations, such as those that pad, block the host.
    at::Tensor data = to_queue_device(at::zeros({kOddCount - 1}), rank);
    group->barrier({})->wait();
    compute([&, data] {
      released.wait();
      memory_of(data).fill_(rank + 1);
    });
    Tensors tensors{data};
    const auto work = group->allreduce(tensors, {});
    if (rank == 0) release.set_value();
    work->wait();
    compute([data] { memory_of(data).mul_(2); });
    EXPECT_TRUE(to_host(data).eq(20).all().item<bool>());
  });
}

/// Over loopback, all bytes that the communicator has sent are those between hosts.
TEST(HybridProcessGroup, SendsTheBytesOfOneRankAHost) {
  const Cluster cluster{2, 2};
  MemoryHosts hosts(cluster);
  constexpr std::int64_t count = 3 << 20;
  run_hybrid(cluster, std::ref(hosts), [&](const Hybrid& group) {
    group->barrier({})->wait();
    const std::size_t before = group->communicator()->payload_bytes_sent();
    Tensors tensors{at::ones({count})};
    group->allreduce(tensors, {})->wait();
    // Two ranks would send all bytes each: here each of two places sends its half.
    EXPECT_EQ(group->communicator()->payload_bytes_sent() - before, count * 4 / 2);
  });
}

TEST(HybridProcessGroup, SmallTensorsAndOtherOperationsTakeAllRanks) {
  const Cluster cluster{2, 2};
  MemoryHosts hosts(cluster);
  run_hybrid(cluster, std::ref(hosts), [&](const Hybrid& group) {
    Tensors small{at::ones({10})}, complex{at::ones({kOddCount}, at::kComplexFloat)};
    group->allreduce(small, {})->wait();
    EXPECT_TRUE(small[0].eq(4).all().item<bool>());
    Tensors sent{at::full({kOddCount}, group->getRank())};
    group->broadcast(sent, {.rootRank = 3})->wait();
    EXPECT_TRUE(sent[0].eq(3).all().item<bool>());
    group->allreduce(complex, {})->wait();
    EXPECT_TRUE(complex[0].eq(4).all().item<bool>());
  });
}

TEST(HybridProcessGroup, ABarrierFollowsItsCollectives) {
  const Cluster cluster{2, 2};
  MemoryHosts hosts(cluster);
  run_hybrid(cluster, std::ref(hosts), [&](const Hybrid& group) {
    Tensors tensors{at::ones({1 << 20})};
    const auto work = group->allreduce(tensors, {});
    group->barrier({})->wait();
    EXPECT_TRUE(work->isCompleted());
  });
}

TEST(HybridProcessGroup, AFailureInsideAHostIsOneOnAllRanks) {
  const Cluster cluster{2, 2};
  MemoryHosts hosts(cluster);
  run_hybrid(
      cluster,
      [&](const HostGrid& grid) {
        InsideBackends inside = hosts(grid);
        // Its gathers fail on both ranks of host 1: the calls of a host block until all have come.
        if (grid.host == 1) dynamic_cast<HostBackend&>(*inside.gathers).fail_at = 0;
        return inside;
      },
      [&](const Hybrid& group) {
        Tensors tensors{at::ones({kOddCount})};
        const auto error = error_of([&] {
          group->allreduce(tensors, {})->wait();
          for (;;) group->allreduce(tensors, {})->wait();  // Host 0 learns it with its next one.
        });
        EXPECT_THAT(error,
                    AnyOf(HasSubstr("the host's bus is broken"), HasSubstr("of the host is gone")))
            << group->getRank();
      });
}

TEST(HostGrid, NamesHostsOfDifferentSizes) {
  run_on_loopback(3, [](const auto& group) {
    const int rank = group->getRank();
    const auto find = [&] { host_grid(*communicator_of(*group), rank == 1 ? "a" : "b"); };
    EXPECT_THAT(error_of(find), AllOf(HasSubstr("different numbers of ranks, [0, 2] and [1]"),
                                      HasSubstr("leave inside out")));
  });
}

}  // namespace
}  // namespace gradwire::test
