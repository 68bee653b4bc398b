#include "gradwire/servers/worker_steps.h"

#include <algorithm>
#include <deque>

#include "gradwire/base/refuse.h"

namespace gradwire::servers {
namespace {

using RecordKind = OrderRecord::Kind;

std::size_t units_of(const OrderLog& log) {
  const auto units =
      std::ranges::count(log.servers.front(), RecordKind::values, &OrderRecord::kind);
  if (units == 0) refuse("the log has no values of server 0");
  return static_cast<std::size_t>(units);
}

/// Goes through the records of all servers.
class StepCollector {
 public:
  explicit StepCollector(const OrderLog& log)
      : log_(log),
        workers_(static_cast<std::size_t>(log.placement.workers)),
        dealt_(workers_),
        lost_(workers_) {
    constexpr std::size_t kMostParts = 1'000'000;
    steps_.units = units_of(log);
    for (const auto& records : log.servers) records_ += records.size();
    if (workers_ * steps_.units * log.servers.size() > kMostParts) {
      refuse("{} workers, {} servers and {} units are more than can be replayed", workers_,
             log.servers.size(), steps_.units);
    }
    steps_.by_worker.resize(workers_);
    for (auto& parts : lost_) parts.resize(log.servers.size() * steps_.units, StepPart::kUnknown);
  }

  WorkerSteps collect() {
    for (std::size_t server = 0; server < log_.servers.size(); ++server) read(server);
    for (auto& steps : steps_.by_worker) {
      for (WorkerStep& step : steps) complete(step);
    }
    return std::move(steps_);
  }

 private:
  void read(std::size_t server) {
    std::vector<std::int64_t> versions(steps_.units);
    std::vector<std::size_t> pushed(steps_.units * workers_), ends(steps_.units);
    for (const OrderRecord& record : log_.servers[server]) {
      const auto worker = static_cast<std::size_t>(record.worker);
      if (record.worker < 0 || worker >= workers_ || record.unit >= steps_.units) {
        refuse("a record of server {} is of worker {} and unit {}, of {} and {}", server,
               record.worker, record.unit, workers_, steps_.units);
      }
      std::int64_t& version = versions[record.unit];
      if (record.base < 0 || (record.kind != RecordKind::deal && record.base > version)) {
        refuse("server {} has a record of version {} of unit {}, which has version {}", server,
               record.base, record.unit, version);
      }
      const std::size_t part = server * steps_.units + record.unit;
      if (record.kind == RecordKind::deal) deal(server, record);
      if (record.kind == RecordKind::lost) lost_[worker][part] = record.base;
      if (record.kind == RecordKind::values) ++ends[record.unit];
      if (!record.is_gradient()) continue;
      add(worker, pushed[record.unit * workers_ + worker]++, part, record, version - record.base);
      if (record.kind == RecordKind::stepped) ++version;
    }
    if (std::ranges::any_of(ends, [](std::size_t values) { return values != 1; })) {
      refuse("the log lacks values of server {}", server);
    }
  }

  void deal(std::size_t server, const OrderRecord& record) {
    if (server > 0 || record.count == 0 || record.clock < 0) {
      refuse("server {} cannot have dealt {} samples of epoch {}", server, record.count,
             record.clock);
    }
    dealt_[static_cast<std::size_t>(record.worker)].push_back(
        {.epoch = record.clock, .begin = record.base, .count = record.count});
  }

  /// Each server has the pushes of a worker's unit in the order of its steps.
  void add(std::size_t worker, std::size_t number, std::size_t part, const OrderRecord& record,
           std::int64_t staleness) {
    auto& steps = steps_.by_worker[worker];
    if (number == steps.size()) {
      const std::size_t parts = log_.servers.size() * steps_.units;
      if (++count_ * parts > records_ + workers_ * parts) {
        refuse("the log lacks parts of several steps of a worker");
      }
      steps.push_back({.worker = record.worker,
                       .number = static_cast<std::int64_t>(number),
                       .random = record.random,
                       .count = record.count,
                       .batches = {},
                       .parts = std::vector<StepPart>(parts)});
    }
    WorkerStep& step = steps[number];
    if (step.random != record.random || step.count != record.count) {
      refuse("servers disagree about step {} of worker {}", number, worker);
    }
    step.parts[part] = {&record, record.base};
    if (record.kind == RecordKind::dropped) {
      ++step.dropped;
      return;
    }
    ++step.applied;
    step.staleness = std::max(step.staleness, staleness);
    step.staleness_sum += staleness;
    step.factor = record.factor;
  }

  /// Adds what no push says: the batches, and the versions of parts that were not pushed.
  void complete(WorkerStep& step) {
    const auto worker = static_cast<std::size_t>(step.worker);
    std::deque<Deal>& dealt = dealt_[worker];
    if (step.count > dealt.size()) {
      refuse("server 0 has not dealt the samples of step {} of worker {}", step.number, worker);
    }
    const auto end = dealt.begin() + step.count;
    step.batches.assign(dealt.begin(), end);
    dealt.erase(dealt.begin(), end);
    for (std::size_t part = 0; part < step.parts.size(); ++part) {
      if (step.parts[part].gradient == nullptr) step.parts[part].base = lost_[worker][part];
    }
  }

  const OrderLog& log_;
  std::size_t workers_;
  std::size_t records_ = 0, count_ = 0;  ///< Numbers of records and of steps.
  WorkerSteps steps_;
  std::vector<std::deque<Deal>> dealt_;          ///< By worker.
  std::vector<std::vector<std::int64_t>> lost_;  ///< By worker and part: the version it had.
};

}  // namespace

WorkerSteps steps_of(const OrderLog& log) {
  return StepCollector(log).collect();
}

}  // namespace gradwire::servers
