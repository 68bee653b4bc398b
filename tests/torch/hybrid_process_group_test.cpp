#include "gradwire/torch/hybrid_process_group.h"

#include <future>
#include <latch>
#include <map>
#include <mutex>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/torch/codec_hook.h"
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

/// No body starts before all ranks have their group: it may leave at once.
void run_hybrid(const Cluster& cluster, const InsideOf& inside,
                const std::function<void(const Hybrid&)>& body) {
  std::latch made(cluster.ranks());
  run_on_loopback(cluster.ranks(), [&](const auto& plain) {
    const HostGrid grid = host_grid(*communicator_of(*plain), cluster.machine(plain->getRank()));
    const auto group = hybrid_group(*plain, grid, inside ? inside(grid) : InsideBackends{});
    made.arrive_and_wait();
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

/// Ranks need not agree on strides: here those of even ranks are transposed.
void check_strides(const Hybrid& group, const std::function<at::Tensor(at::Tensor)>& on) {
  const int ranks = group->getSize(), rank = group->getRank();
  constexpr std::int64_t rows = 120, columns = 200;
  const auto laid_out = [&](const at::Tensor& dense) {
    const at::Tensor there = on(dense.clone());
    return rank % 2 == 0 ? there.t().contiguous().t() : there;
  };
  const at::Tensor sum = reduced(ranks, c10d::ReduceOp::SUM, ranks * rows * columns, at::kFloat)
                             .view({ranks * rows, columns});
  const at::Tensor mine = values(rank, ranks * rows * columns).view({ranks * rows, columns});
  Tensors tensors{laid_out(mine)};
  group->allreduce(tensors, {})->wait();
  EXPECT_TRUE(to_host(tensors[0]).equal(sum));
  at::Tensor whole = laid_out(mine), part = laid_out(at::zeros({rows, columns}));
  group->_reduce_scatter_base(part, whole, {})->wait();
  EXPECT_TRUE(to_host(part).equal(sum.narrow(0, rows * rank, rows)));
  EXPECT_TRUE(to_host(whole).equal(mine));
  group->_allgather_base(whole, part, {})->wait();
  EXPECT_TRUE(to_host(whole).equal(sum));
}

TEST(HybridProcessGroup, TakesTensorsOfAnyStrides) {
  const Cluster cluster{2, 2, true};
  MemoryHosts hosts(cluster);
  run_hybrid(cluster, std::ref(hosts), [](const Hybrid& group) {
    check_strides(group, [](const at::Tensor& tensor) { return tensor; });
    Tensors several{at::ones({kOddCount}), at::ones({kOddCount})};
    group->allreduce(several, {})->wait();
    EXPECT_TRUE(several[1].eq(8).all().item<bool>());
    Tensors expanded{at::ones({1}).expand({kOddCount})};
    EXPECT_THAT(error_of([&] { group->allreduce(expanded, {}); }), HasSubstr("share memory"));
  });
  install_queue_device();
  run_hybrid(cluster, nullptr, [](const Hybrid& group) {
    const int rank = group->getRank();
    to_queue_device(at::empty({0}), rank);  // Makes it current.
    check_strides(group, [&](const at::Tensor& tensor) { return to_queue_device(tensor, rank); });
  });
}

TEST(HybridProcessGroup, GathersAnyType) {
  const Cluster cluster{2, 2};
  MemoryHosts hosts(cluster);
  run_hybrid(cluster, std::ref(hosts), [&](const Hybrid& group) {
    for (const auto type : {at::kShort, at::kBool, at::kComplexFloat, at::kFloat8_e5m2}) {
      at::Tensor part = at::full({kOddCount}, group->getRank() % 2, at::kFloat).to(type);
      at::Tensor whole = at::zeros({4 * kOddCount}, at::kFloat).to(type);
      group->_allgather_base(whole, part, {})->wait();
      const at::Tensor found = whole.to(at::kFloat).view({4, kOddCount});
      for (int rank = 0; rank < 4; ++rank)
        EXPECT_TRUE(found[rank].eq(rank % 2).all().item<bool>()) << type;
    }
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

/// Backends whose calls never end. A group that ends with such calls keeps its backends for ever.
class StuckHosts {
 public:
  ~StuckHosts() {  // Here they end.
    for (StuckBackend* one : all_) c10::intrusive_ptr<StuckBackend>::reclaim(one);
  }
  InsideBackends operator()(const HostGrid& grid) {
    const std::lock_guard lock(mutex_);
    const auto made = [&] {
      const auto stuck =
          c10::make_intrusive<StuckBackend>(static_cast<int>(grid.place), grid.places());
      all_.push_back(stuck.get());
      return stuck;
    };
    const auto reductions = made();
    reductions_[grid.inside()[grid.place]] = reductions.get();
    return {reductions, made()};
  }
  StuckBackend& reductions(Rank rank) {
    const std::lock_guard lock(mutex_);
    return *reductions_.at(rank);
  }

 private:
  std::mutex mutex_;
  std::vector<StuckBackend*> all_;
  std::map<Rank, StuckBackend*> reductions_;
};

TEST(HybridProcessGroup, LeavesAtOnceWhateverItsBackendWaitsFor) {
  StuckHosts hosts;
  run_hybrid({}, std::ref(hosts), [](const Hybrid& group) {
    Tensors tensors{at::ones({kOddCount})};
    const auto work = group->allreduce(tensors, {});
    group->leave_at_once("an exception");
    EXPECT_THAT(error_of([&] { work->wait(); }), HasSubstr("the group ended while ranks of"));
    group->shutdown();
    EXPECT_THAT(error_of([&] { group->allreduce(tensors, {}); }), HasSubstr("shut down"));
  });
}

TEST(HybridProcessGroup, ItsTimeoutIsThatOfTheBackendInside) {
  StuckHosts hosts;
  run_hybrid({}, std::ref(hosts), [&](const Hybrid& group) {
    constexpr std::chrono::milliseconds given(1234);
    group->setTimeout(given);
    Tensors tensors{at::ones({kOddCount})};
    const auto work = group->allreduce(tensors, {});
    const StuckBackend& used = hosts.reductions(group->getRank());
    while (used.timeout.load().count() == 0) std::this_thread::yield();
    EXPECT_EQ(used.timeout.load(), given);
    group->leave_at_once("the test is over");
  });
}

TEST(CodecHook, MayCloseWhileABucketIsReducedInsideAHost) {
  const Cluster cluster{2, 2};
  MemoryHosts hosts(cluster);
  std::promise<void> closes;
  const auto closed = closes.get_future().share();
  run_hybrid(cluster, std::ref(hosts), [&](const Hybrid& group) {
    auto hook =
        std::make_shared<CodecHook>(group->between()->communicator(),
                                    exchange::ExchangeOptions{.codec = "int8"}, group->hybrid());
    const at::Tensor values = at::ones({kOddCount});
    const std::vector<std::int64_t> sizes{kOddCount};
    const c10d::GradBucket bucket(0, 1, values, {0}, {kOddCount}, {sizes}, {values}, {});
    if (group->getRank() != 0) closed.wait();
    const auto future = hook->run(bucket);
    hook->close();
    hook.reset();
    if (group->getRank() == 0) closes.set_value();
    EXPECT_NE(error_of([&] { future->waitAndThrow(); }), "no error") << group->getRank();
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
