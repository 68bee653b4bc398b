#include "gradwire/servers/order_replay.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "gradwire/base/crc32c.h"
#include "gradwire/base/refuse.h"

namespace gradwire::servers {
namespace {

using RecordKind = OrderRecord::Kind;

ConstBytes bytes_of(const LentSpan& span) {
  return {static_cast<const std::byte*>(span.data), span.count * size_of(span.type)};
}

std::vector<std::byte> copy_of(const LentSpan& span) {
  const ConstBytes bytes = bytes_of(span);
  return {bytes.begin(), bytes.end()};
}

/// "step 3 of worker 1 (samples 16 to 24 of epoch 0)".
std::string name_of(const WorkerStep& step) {
  std::string samples;
  for (const Deal& batch : step.batches) {
    samples += fmt::format("{}samples {} to {} of epoch {}", samples.empty() ? "" : ", ",
                           batch.begin, batch.begin + batch.count, batch.epoch);
  }
  return fmt::format("step {} of worker {} ({})", step.number, step.worker, samples);
}

}  // namespace

OrderReplay::OrderReplay(const OrderLog& log, std::vector<ServedShards*> servers,
                         ReplayedWorkers& workers)
    : log_(log),
      workers_(workers),
      steps_(steps_of(log)),
      history_(servers.size() * steps_.units),
      computed_(steps_.by_worker.size()),
      begun_(steps_.by_worker.size()) {
  for (ServedShards* shards : servers) {
    servers_.push_back({.shards = shards,
                        .versions = std::vector<std::int64_t>(steps_.units),
                        .pushed = std::vector<std::size_t>(steps_.units * begun_.size()),
                        .open = std::vector<std::vector<LentSpan>>(steps_.units)});
  }
  check_shapes();
  count_readers();
}

void OrderReplay::check_shapes() const {
  if (servers_.size() != log_.servers.size()) {
    refuse("the log is of {} servers, not {}", log_.servers.size(), servers_.size());
  }
  for (const Served& server : servers_) {
    if (server.shards->units() == steps_.units) continue;
    refuse(
        "the log is of a model with {} units, and this one has {}: replay with the gradwire "
        "that wrote it",
        steps_.units, server.shards->units());
  }
}

void OrderReplay::count_readers() {
  for (const auto& steps : steps_.by_worker) {
    for (const WorkerStep& step : steps) {
      for (std::size_t part = 0; part < step.parts.size(); ++part) {
        ++history_[part].readers[step.parts[part].base];
      }
    }
  }
  for (std::size_t server = 0; server < servers_.size(); ++server) {
    for (std::size_t unit = 0; unit < steps_.units; ++unit) keep_values(server, unit);
  }
}

/// Keeps the present version of a part, if a step reads it.
void OrderReplay::keep_values(std::size_t server, std::size_t unit) {
  History& history = history_[part_of_unit(server, unit)];
  const std::int64_t version = servers_[server].versions[unit];
  if (!history.readers.contains(version)) return;
  history.values[version] = copy_of(servers_[server].shards->values(unit));
}

void OrderReplay::run(const OnStep& on_step) {
  const auto is_at_end = [&](std::size_t server) {
    return servers_[server].next == log_.servers[server].size();
  };
  for (bool moved = true; std::exchange(moved, false);) {
    for (std::size_t server = 0; server < servers_.size(); ++server) {
      while (!is_at_end(server) && advance(server, on_step)) moved = true;
    }
  }
  for (std::size_t server = 0; server < servers_.size(); ++server) {
    if (is_at_end(server)) continue;
    refuse(
        "record {} of server {} needs values that no record before it makes: the log is not "
        "of one whole run",
        servers_[server].next, server);
  }
}

/// Takes the server's next record. Returns false if its gradient cannot be computed yet.
bool OrderReplay::advance(std::size_t server, const OnStep& on_step) {
  const OrderRecord& record = log_.servers[server][servers_[server].next];
  if (record.is_gradient() && !take_gradient(server, record, on_step)) return false;
  if (record.kind == RecordKind::values) check_values(server, record);
  ++servers_[server].next;
  return true;
}

bool OrderReplay::take_gradient(std::size_t server, const OrderRecord& record,
                                const OnStep& on_step) {
  const auto worker = static_cast<std::size_t>(record.worker);
  std::size_t& pushed = servers_[server].pushed[record.unit * begun_.size() + worker];
  const WorkerStep& step = steps_.by_worker[worker][pushed];
  if (begun_[worker] <= step.number) {
    if (!is_computable(step)) return false;
    compute(step, on_step);
  }
  ++pushed;
  const LentSpan gradient = take_part(step, server, record.unit);
  if (crc32c(bytes_of(gradient)) != record.checksum) {
    note(fmt::format("the gradient of unit {} (part of server {}) in {} differs", record.unit,
                     server, name_of(step)));
  }
  if (record.kind != RecordKind::dropped) apply(server, record, gradient);
  return true;
}

bool OrderReplay::is_computable(const WorkerStep& step) const {
  if (begun_[static_cast<std::size_t>(step.worker)] != step.number) return false;
  for (std::size_t server = 0; server < servers_.size(); ++server) {
    for (std::size_t unit = 0; unit < steps_.units; ++unit) {
      const std::int64_t base = step.parts[part_of_unit(server, unit)].base;
      if (base == StepPart::kUnknown || base > servers_[server].versions[unit]) return false;
    }
  }
  return true;
}

void OrderReplay::compute(const WorkerStep& step, const OnStep& on_step) {
  for (std::size_t server = 0; server < servers_.size(); ++server) {
    for (std::size_t unit = 0; unit < steps_.units; ++unit) {
      read(server, unit, step.parts[part_of_unit(server, unit)].base);
    }
  }
  if (workers_.compute(step) != step.random) {
    note(fmt::format("{} begins with other random numbers", name_of(step)));
  }
  const auto computed = std::make_shared<Computed>();
  computed->left = step.applied + step.dropped;
  for (std::size_t unit = 0; unit < steps_.units; ++unit) {
    computed->units.push_back(copy_of(workers_.gradient(unit)));
  }
  const auto worker = static_cast<std::size_t>(step.worker);
  computed_[worker][step.number] = computed;
  ++begun_[worker];
  on_step(step);
}

/// Gives the workers a version of a part, which is forgotten when the last step has read it.
void OrderReplay::read(std::size_t server, std::size_t unit, std::int64_t version) {
  History& history = history_[part_of_unit(server, unit)];
  const Values& values = history.values.at(version);
  const auto parts = static_cast<int>(servers_.size());
  const LentSpan whole = workers_.values(unit);
  std::memcpy(part_of(whole, static_cast<int>(server), parts).data, values.data(), values.size());
  if (--history.readers.at(version) > 0) return;
  history.readers.erase(version);
  history.values.erase(version);
}

/// Returns a part of a computed gradient, which keeps its memory.
LentSpan OrderReplay::take_part(const WorkerStep& step, std::size_t server, std::size_t unit) {
  auto& computed = computed_[static_cast<std::size_t>(step.worker)];
  const auto found = computed.find(step.number);
  const std::shared_ptr<Computed> taken = found->second;
  if (--taken->left == 0) computed.erase(found);
  LentSpan whole = workers_.gradient(unit);
  whole.data = taken->units[unit].data();
  whole.keep_alive = taken;
  return part_of(whole, static_cast<int>(server), static_cast<int>(servers_.size()));
}

void OrderReplay::apply(std::size_t server, const OrderRecord& record, LentSpan gradient) {
  Served& served = servers_[server];
  std::vector<LentSpan>& open = served.open[record.unit];
  open.push_back(std::move(gradient));
  if (record.kind == RecordKind::added) return;
  served.shards->step(record.unit, take_mean(open), record.factor);
  open.clear();
  ++served.versions[record.unit];
  keep_values(server, record.unit);
}

void OrderReplay::check_values(std::size_t server, const OrderRecord& record) {
  if (crc32c(bytes_of(servers_[server].shards->values(record.unit))) == record.checksum) return;
  note(fmt::format("the last values of unit {} (part of server {}) differ", record.unit, server));
}

void OrderReplay::note(const std::string& difference) {
  if (difference_.empty()) difference_ = difference;
}

}  // namespace gradwire::servers
