#include "gradwire/topology/topology_file.h"

#include <cmath>

#include "tests/fuzz/target.h"

namespace gradwire::fuzz {
namespace {

topology::Cluster cluster() {
  using std::chrono::microseconds;
  const topology::MeasuredRail rail{
      .interface = "gw0", .mtu = 9000, .bytes_per_second = 1.25e9, .latency = microseconds(20)};
  const topology::MeasuredHost a{.name = "a", .ranks = 2, .cores = 8, .rails = {rail, rail}};
  topology::MeasuredHost b{
      .name = "b",
      .cores = 4,
      .kernel = 1,
      .rails = {rail},
      .inside = topology::Link{.latency = microseconds(1), .bytes_per_second = 5e9},
      .together_bytes_per_second = 2e9,
      .clock_offset = microseconds(-1500),
      .clock_uncertainty = microseconds(12)};
  return {.hosts = {a, b},
          .paths = {{.from = 0,
                     .to = 1,
                     .rail = 0,
                     .latency = microseconds(21),
                     .shortest_latency = microseconds(19),
                     .bytes_per_second = 1.2e9,
                     .largest_packet = 9000,
                     .loss = 0.001}},
          .choices = {{.collective = "all_reduce",
                       .ranks = 3,
                       .bytes = 1 << 20,
                       .algorithm = "ring",
                       .time = microseconds(300),
                       .segments = 4}}};
}

/// A double of microseconds does not represent nanoseconds of more than a few weeks.
bool nearly(Duration a, Duration b) {
  const auto ns = [](Duration d) { return static_cast<double>(d.count()); };
  return std::abs(ns(a) - ns(b)) <= 1e-12 * std::abs(ns(a));
}

/// Compares for equality, except for the last digits of large clock differences.
bool same_meaning(const topology::Cluster& a, topology::Cluster b) {
  if (a.hosts.size() != b.hosts.size()) return false;
  for (std::size_t i = 0; i < a.hosts.size(); ++i) {
    if (!nearly(a.hosts[i].clock_offset, b.hosts[i].clock_offset) ||
        !nearly(a.hosts[i].clock_uncertainty, b.hosts[i].clock_uncertainty)) {
      return false;
    }
    b.hosts[i].clock_offset = a.hosts[i].clock_offset;
    b.hosts[i].clock_uncertainty = a.hosts[i].clock_uncertainty;
  }
  return a.hosts == b.hosts && a.paths == b.paths && a.choices == b.choices;
}

}  // namespace

std::vector<std::string> seeds() {
  topology::Cluster one = cluster();
  one.hosts.pop_back();
  one.paths.clear();
  one.choices.clear();
  return {to_json(cluster()), to_json(one)};
}

void repair(std::string&) {}

/// A topology that is read is in range, makes a Topology, and is unchanged when written and read.
void test(std::string_view input) {
  const Result<topology::Cluster> read = topology::parse_cluster(input);
  if (!read) {
    expect(read.error().kind == ErrorKind::invalid_argument, "a refusal is the user's to mend");
    expect(read.error().message.size() < 1000 + input.size(), "a refusal is no longer");
    return;
  }
  expect(!read->hosts.empty(), "there is a host");
  for (const topology::MeasuredHost& host : read->hosts) {
    expect(!host.rails.empty() && host.ranks >= 1 && host.cores >= 0, "with a rail and a rank");
    for (const topology::MeasuredRail& rail : host.rails) {
      expect(rail.latency >= Duration::zero() && rail.bytes_per_second >= 0, "of possible speed");
    }
  }
  for (const topology::MeasuredPath& path : read->paths) {
    const auto hosts = static_cast<int>(read->hosts.size());
    expect(path.from >= 0 && path.from < hosts && path.to >= 0 && path.to < hosts,
           "paths are between hosts");
  }
  const Result<topology::Cluster> same = topology::parse_cluster(to_json(*read));
  expect(same.has_value(), "a parsed value can be written and parsed again");
  expect(same_meaning(*read, *same), "and means the same");
}

}  // namespace gradwire::fuzz
