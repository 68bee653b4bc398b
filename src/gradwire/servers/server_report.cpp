#include "gradwire/servers/server_report.h"

#include <algorithm>
#include <bit>

#include "gradwire/base/error.h"

namespace gradwire::servers {
namespace {

void append(std::vector<std::int64_t>& integers, const std::vector<Staleness>& all) {
  integers.push_back(static_cast<std::int64_t>(all.size()));
  for (const Staleness& staleness : all) {
    integers.push_back(static_cast<std::int64_t>(staleness.counts().size()));
    for (const auto& [value, count] : staleness.counts()) {
      integers.insert(integers.end(), {value, count});
    }
  }
}

/// Reads integers in order.
class Reader {
 public:
  explicit Reader(std::span<const std::int64_t> integers) : left_(integers) {}

  std::int64_t next() {
    if (left_.empty()) fail();
    const std::int64_t value = left_.front();
    left_ = left_.subspan(1);
    return value;
  }

  std::int64_t whole() {
    const std::int64_t value = next();
    if (value < 0) fail();
    return value;
  }

  Duration duration() { return Duration(whole()); }

  /// A number of things that take at least `each` integers.
  std::size_t count(std::size_t each) {
    const std::int64_t value = next();
    if (value < 0 || static_cast<std::size_t>(value) > left_.size() / each) fail();
    return static_cast<std::size_t>(value);
  }

  std::vector<Staleness> all_staleness() {
    std::vector<Staleness> all(count(1));
    for (Staleness& staleness : all) {
      for (std::size_t values = count(2); values > 0; --values) {
        const std::int64_t value = next(), number = next();
        if (value < 0 || number <= 0) fail();
        staleness.add(value, number);
      }
    }
    return all;
  }

  void end() const {
    if (!left_.empty()) fail();
  }

 private:
  [[noreturn]] static void fail() {
    throw Exception(ErrorKind::corrupted, "a server's report is damaged");
  }

  std::span<const std::int64_t> left_;
};

void add(std::vector<Staleness>& sums, const std::vector<Staleness>& others) {
  sums.resize(std::max(sums.size(), others.size()));
  for (std::size_t i = 0; i < others.size(); ++i) sums[i].add(others[i]);
}

}  // namespace

std::int64_t ServerReport::updates() const {
  return staleness().count();
}

Staleness ServerReport::staleness() const {
  Staleness all;
  for (const Staleness& unit : by_unit) all.add(unit);
  return all;
}

std::int64_t ServerReport::late() const {
  std::int64_t sum = 0;
  for (const Dropped& worker : dropped) sum += worker.late;
  return sum;
}

void add(ServerReport& sum, const ServerReport& other) {
  const auto count = static_cast<double>(sum.updates()),
             more = static_cast<double>(other.updates());
  if (count + more > 0) {
    sum.mean_factor = (sum.mean_factor * count + other.mean_factor * more) / (count + more);
  }
  sum.versions.resize(std::max(sum.versions.size(), other.versions.size()));
  for (std::size_t unit = 0; unit < other.versions.size(); ++unit) {
    sum.versions[unit] = std::max(sum.versions[unit], other.versions[unit]);
  }
  add(sum.by_unit, other.by_unit);
  add(sum.by_worker, other.by_worker);
  sum.dropped.resize(std::max(sum.dropped.size(), other.dropped.size()));
  for (std::size_t worker = 0; worker < other.dropped.size(); ++worker) {
    sum.dropped[worker].late += other.dropped[worker].late;
    sum.dropped[worker].repeated += other.dropped[worker].repeated;
  }
  if (!other.paces.empty()) sum.paces = other.paces;  // Workers tell all servers the same.
  sum.busy += other.busy;
  sum.servers += other.servers;
  sum.elapsed = std::max(sum.elapsed, other.elapsed);
  sum.lost_servers += other.lost_servers;
  sum.lost_updates += other.lost_updates;
  sum.lost_gradients += other.lost_gradients;
}

std::vector<std::int64_t> encode(const ServerReport& report) {
  std::vector<std::int64_t> integers{std::bit_cast<std::int64_t>(report.mean_factor),
                                     report.busy.count(),
                                     report.elapsed.count(),
                                     report.lost_servers,
                                     report.lost_updates,
                                     report.lost_gradients,
                                     static_cast<std::int64_t>(report.versions.size())};
  integers.insert(integers.end(), report.versions.begin(), report.versions.end());
  append(integers, report.by_unit);
  append(integers, report.by_worker);
  integers.push_back(static_cast<std::int64_t>(report.paces.size()));
  for (const Pace& pace : report.paces) {
    integers.insert(integers.end(), {pace.mean.count(), pace.deviation.count()});
  }
  integers.push_back(static_cast<std::int64_t>(report.dropped.size()));
  for (const Dropped& worker : report.dropped) {
    integers.insert(integers.end(), {worker.late, worker.repeated});
  }
  return integers;
}

ServerReport decode_report(std::span<const std::int64_t> integers) {
  Reader reader(integers);
  ServerReport report;
  report.mean_factor = std::bit_cast<double>(reader.next());
  report.busy = Duration(reader.next());
  report.elapsed = Duration(reader.next());
  report.lost_servers = reader.whole();
  report.lost_updates = reader.whole();
  report.lost_gradients = reader.whole();
  report.versions.resize(reader.count(1));
  for (std::int64_t& version : report.versions) version = reader.whole();
  report.by_unit = reader.all_staleness();
  report.by_worker = reader.all_staleness();
  report.paces.resize(reader.count(2));
  for (Pace& pace : report.paces) {
    pace.mean = reader.duration();
    pace.deviation = reader.duration();
  }
  report.dropped.resize(reader.count(2));
  for (Dropped& worker : report.dropped) {
    worker.late = reader.next();
    worker.repeated = reader.next();
  }
  reader.end();
  return report;
}

}  // namespace gradwire::servers
