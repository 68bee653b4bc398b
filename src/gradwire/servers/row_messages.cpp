#include "gradwire/servers/row_messages.h"

#include <algorithm>
#include <numeric>
#include <tuple>

#include <fmt/format.h>

#include "gradwire/base/crc32c.h"
#include "gradwire/base/error.h"
#include "gradwire/base/refuse.h"

namespace gradwire::servers {

std::uint64_t fingerprint_of(const RowLayout& layout) {
  const Placement& placement = layout.placement;
  const RowOptions& rows = layout.rows;
  const std::string text =
      fmt::format("rows {} {} {} {} {} {} {} {} {}", placement.workers, placement.servers,
                  placement.beside_workers, rows.rows, rows.width, rows.seed, rows.optimizer,
                  rows.learning_rate, layout.staleness);
  return crc32c(std::as_bytes(std::span(text)));
}

void add(RowReport& sum, const RowReport& other) {
  sum.made += other.made;
  sum.bytes += other.bytes;
  sum.steps = std::max(sum.steps, other.steps);
  sum.max_permits = std::max(sum.max_permits, other.max_permits);
  sum.staleness.add(other.staleness);
}

std::vector<std::int64_t> encode(const RowReport& report) {
  std::vector<std::int64_t> integers{report.made, report.bytes, report.steps, report.max_permits};
  for (const auto& [staleness, count] : report.staleness.counts()) {
    integers.insert(integers.end(), {staleness, count});
  }
  return integers;
}

RowReport decode_row_report(std::span<const std::int64_t> integers) {
  if (integers.size() < 4 || integers.size() % 2 != 0) {
    throw Exception(ErrorKind::corrupted, "a report of a server of rows is damaged");
  }
  RowReport report{integers[0], integers[1], integers[2], integers[3], {}};
  for (std::size_t i = 4; i < integers.size(); i += 2) {
    report.staleness.add(integers[i], integers[i + 1]);
  }
  return report;
}

DistinctIds distinct(std::span<const std::int64_t> batch, const RowLayout& layout) {
  const int servers = layout.placement.servers;
  std::vector<std::size_t> order(batch.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto place = [&](std::size_t i) { return std::tuple(batch[i] % servers, batch[i]); };
  std::ranges::sort(order, {}, place);
  DistinctIds found;
  found.positions.resize(batch.size());
  for (const std::size_t i : order) {
    const std::int64_t id = batch[i];
    if (id < 0 || id >= layout.rows.rows) {
      refuse("id {} is not one of an embedding of {} rows", id, layout.rows.rows);
    }
    if (found.ids.empty() || found.ids.back() != id) {
      const auto server = static_cast<std::size_t>(layout.server_of(id));
      found.begins.resize(std::max(found.begins.size(), server + 1), found.ids.size());
      found.ids.push_back(id);
    }
    found.positions[i] = static_cast<std::int64_t>(found.ids.size()) - 1;
  }
  found.begins.resize(static_cast<std::size_t>(servers) + 1, found.ids.size());
  return found;
}

}  // namespace gradwire::servers
