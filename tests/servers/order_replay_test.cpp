#include "gradwire/servers/order_replay.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/servers/served_job.h"
#include "tests/support/error_of.h"

/// Runs over real sockets, repeated on one thread.
namespace gradwire::servers::test {
namespace {

using gradwire::test::error_of;
using gradwire::test::lend;
using testing::AllOf;
using testing::HasSubstr;

constexpr std::int64_t kReplaySamples = 240, kReplayBatch = 4;

using Units = std::vector<std::vector<float>>;

std::vector<exchange::UnitShape> two_units() {
  return {{.count = 12}, {.count = 2'000}};
}

Units zero_units() {
  Units units;
  for (const auto& shape : two_units()) units.emplace_back(shape.count);
  return units;
}

/// A gradient that depends on the values, on the samples and on the worker's random numbers.
Units gradient_at(const Units& values, const Deal& batch, Random& random) {
  const float noise = static_cast<float>(random.unit()),
              samples = 0.01F * static_cast<float>(1 + batch.begin % 17);
  Units gradient = values;
  for (auto& unit : gradient) {
    for (std::size_t i = 0; i < unit.size(); ++i) {
      unit[i] = 0.3F * unit[i] + samples - noise * 1e-3F * static_cast<float>(i % 7);
    }
  }
  return gradient;
}

std::uint32_t checksum_of(Random random) {
  return static_cast<std::uint32_t>(random.next());
}

Random random_of(Rank worker) {
  return Random(100 + static_cast<std::uint64_t>(worker));
}

class FakeWorkers final : public ReplayedWorkers {
 public:
  explicit FakeWorkers(int workers) {
    for (Rank worker = 0; worker < workers; ++worker) random_.push_back(random_of(worker));
  }

  LentSpan values(std::size_t unit) override { return lend(values_[unit]); }
  LentSpan gradient(std::size_t unit) override { return lend(gradient_[unit]); }
  std::uint32_t compute(const WorkerStep& step) override {
    Random& random = random_[static_cast<std::size_t>(step.worker)];
    const std::uint32_t checksum = checksum_of(random);
    gradient_ = gradient_at(values_, step.batches.at(0), random);
    return checksum;
  }

 private:
  Units values_ = zero_units(), gradient_ = zero_units();
  std::vector<Random> random_;
};

struct ReplayedRun {
  std::string name;
  Placement placement;
  ServerPolicy policy;
  int pull_every = 1;
  bool loses_worker = false;
};

void PrintTo(const ReplayedRun& run, std::ostream* out) {
  *out << run.name;
}

/// Ends this worker as a kill does, after a part of a push: of the last unit, not of the first.
[[noreturn]] void die_within_a_push(ServedJob& job, ServedExchange& exchange, Units& gradient) {
  exchange.reduce_scatter(1, lend(gradient[1]), {}, 0).wait();
  job.job().on(1).leave_at_once("after a test");
  throw Exception(ErrorKind::aborted, "left");
}

void train(ServedJob& job, ServedExchange& exchange, Rank worker, const ReplayedRun& run) {
  Units values = zero_units();
  Random random = random_of(worker);
  exchange.set_batches(1);
  for (int number = 0;; ++number) {
    const Deal batch = exchange.take(kReplayBatch);
    if (batch.count == 0 && batch.applied == kReplaySamples) break;
    if (batch.count == 0) continue;
    exchange.set_random(checksum_of(random));
    exchange.set_rate(1.0 / (1 + number % 3));
    Units gradient = gradient_at(values, batch, random);
    if (run.loses_worker && worker == 1 && number == 5) die_within_a_push(job, exchange, gradient);
    for (std::size_t unit = 2; unit-- > 0;) {
      exchange.reduce_scatter(unit, lend(gradient[unit]), {}, 0).wait();
    }
    for (std::size_t unit = 0; unit < 2; ++unit) {
      exchange.all_gather(unit, {}, lend(values[unit]), 0).wait();
    }
  }
  exchange.meet();
}

/// A run's log, as the first worker fetches it.
OrderLog log_of(const ReplayedRun& run, std::vector<Units>& values) {
  ServerPolicy policy = run.policy;
  policy.workers = run.placement.workers;
  ServedJob job({run.placement, policy, two_units()});
  job.deal(kReplaySamples, 1);
  job.keep_order();
  OrderLog log{.placement = run.placement};
  const auto errors = job.run(
      [&](Rank worker, ServedExchange& exchange) {
        train(job, exchange, worker, run);
        if (worker != 0) return;
        for (int server = 0; server < run.placement.servers; ++server) {
          log.servers.push_back(exchange.order(server));
        }
      },
      run.pull_every);
  for (std::size_t i = 0; i < errors.size(); ++i) {
    EXPECT_EQ(errors[i], run.loses_worker && i == 1 ? "left" : "") << i;
  }
  for (const SteppedShards& shards : job.shards()) {
    Units& parts = values.emplace_back();
    for (const SteppedValues& part : shards.parts) parts.push_back(part.values);
  }
  return log;
}

/// Replays, and returns the first difference. `values`: by server.
std::string replay(const OrderLog& log, std::vector<Units>* values = nullptr) {
  std::vector<SteppedShards> shards;
  for (int i = 0; i < log.placement.servers; ++i) {
    shards.emplace_back(two_units(), log.placement.servers);
  }
  std::vector<ServedShards*> servers;
  for (SteppedShards& each : shards) servers.push_back(&each);
  FakeWorkers workers(log.placement.workers);
  OrderReplay replay(log, servers, workers);
  std::vector<std::int64_t> next(static_cast<std::size_t>(log.placement.workers));
  replay.run([&](const WorkerStep& step) {
    EXPECT_EQ(step.number, next[static_cast<std::size_t>(step.worker)]++);
  });
  for (const SteppedShards& each : shards) {
    if (values == nullptr) break;
    Units& parts = values->emplace_back();
    for (const SteppedValues& part : each.parts) parts.push_back(part.values);
  }
  return replay.difference();
}

class OrderReplayOf : public testing::TestWithParam<ReplayedRun> {};
INSTANTIATE_TEST_SUITE_P(
    ServedJob, OrderReplayOf,
    testing::Values(
        ReplayedRun{"Async", {4, 2, false}, {.mode = Mode::async}},
        ReplayedRun{"AsyncInverse",
                    {3, 1, false},
                    {.mode = Mode::async, .rate = {RateRule::Kind::inverse}}},
        ReplayedRun{"RarePulls", {3, 2, false}, {.mode = Mode::async}, 3},
        ReplayedRun{"Ssp", {4, 2, false}, {.mode = Mode::ssp, .staleness = 1}},
        ReplayedRun{"Use", {4, 2, false}, {.mode = Mode::sync, .use = 0.5}},
        ReplayedRun{"LostWorker", {3, 2, false}, {.mode = Mode::async}, 1, true},
        ReplayedRun{"LostWorkerInSsp", {3, 2, false}, {.mode = Mode::ssp, .staleness = 2}, 1, true},
        ReplayedRun{"LostWorkerInUse", {4, 2, false}, {.mode = Mode::sync, .use = 0.5}, 1, true}),
    [](const auto& given) { return given.param.name; });

TEST_P(OrderReplayOf, HasTheSameBits) {
  std::vector<Units> expected, values;
  const OrderLog log = decode_order(encode_order(log_of(GetParam(), expected)), "order.bin");
  EXPECT_EQ(replay(log, &values), "");
  EXPECT_EQ(values, expected);
}

TEST(OrderReplay, NamesTheFirstDifference) {
  std::vector<Units> values;
  const OrderLog log = log_of({"", {2, 1, false}, {.mode = Mode::async}}, values);
  const auto changed = [&](OrderRecord::Kind kind, std::size_t which, auto change) {
    OrderLog other = log;
    for (OrderRecord& record : other.servers[0]) {
      if (record.kind == kind && which-- == 0) change(record);
    }
    return other;
  };
  EXPECT_THAT(replay(changed(RecordKind::stepped, 20, [](OrderRecord& r) { r.checksum ^= 1; })),
              AllOf(HasSubstr("the gradient of unit"), HasSubstr("of epoch 0) differs")));
  EXPECT_THAT(replay(changed(RecordKind::deal, 9, [](OrderRecord& r) { r.base += 3; })),
              HasSubstr("differs"));
  EXPECT_THAT(replay(changed(RecordKind::stepped, 20, [](OrderRecord& r) { r.factor *= 0.5; })),
              HasSubstr("differs"));
  EXPECT_THAT(replay(changed(RecordKind::values, 1, [](OrderRecord& r) { r.checksum ^= 1; })),
              HasSubstr("the last values of unit 1"));
  OrderLog random = log;
  for (OrderRecord& record : random.servers[0]) record.random ^= 1;
  EXPECT_THAT(replay(random), HasSubstr("begins with other random numbers"));
}

/// Each of two steps needs the values that the other one makes.
TEST(OrderReplay, RefusesALogThatContradictsItself) {
  OrderLog log{.placement = {2, 2, false}, .servers = {{}, {}}};
  for (Rank worker = 0; worker < 2; ++worker) {
    log.servers[0].push_back({.kind = RecordKind::deal, .worker = worker, .count = 4});
  }
  for (std::size_t server = 0; server < 2; ++server) {
    auto& records = log.servers[server];
    for (std::uint32_t unit = 0; unit < 2; ++unit) {
      for (std::int64_t number = 0; number < 2; ++number) {
        const auto worker = static_cast<Rank>(number) ^ static_cast<Rank>(server);
        records.push_back({.worker = worker, .unit = unit, .count = 1, .base = number});
      }
      records.push_back({.kind = RecordKind::values, .unit = unit, .base = 2});
    }
  }
  EXPECT_THAT(error_of([&] { replay(log); }), HasSubstr("the log is not of one whole run"));
}

}  // namespace
}  // namespace gradwire::servers::test
