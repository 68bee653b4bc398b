#include "tests/support/topologies.h"

#include <utility>

namespace gradwire::test {
namespace {

/// A host's ranks and the rates of its rails, in Gb/s.
struct HostShape {
  int ranks = 1;
  std::vector<double> rails{1};
};

topology::Host host_with(const std::vector<double>& rates) {
  topology::Host host{.name = "", .rails = {}};
  for (const double rate : rates) host.rails.push_back({.bytes_per_second = rate * 1.25e8});
  return host;
}

/// The ranks of a host follow each other.
topology::Topology in_blocks(const std::vector<HostShape>& shapes) {
  std::vector<topology::Host> hosts;
  std::vector<int> host_of;
  for (const HostShape& shape : shapes) {
    host_of.insert(host_of.end(), static_cast<std::size_t>(shape.ranks),
                   static_cast<int>(hosts.size()));
    hosts.push_back(host_with(shape.rails));
  }
  return topology::Topology(std::move(hosts), std::move(host_of));
}

topology::Topology one_machine(int ranks) {
  return in_blocks({{.ranks = ranks}});
}

/// Ranks 0, 2 and 4 on one host, 1 and 3 on the other.
topology::Topology in_turn() {
  return topology::Topology({host_with({1}), host_with({1})}, {0, 1, 0, 1, 0});
}

/// Equal ports, and one direction between two hosts that is slower than they suggest.
topology::Topology slow_link() {
  topology::Topology topology = in_blocks({{}, {}, {}, {}});
  topology.set_measured(0, 1, {.latency = std::chrono::microseconds(80), .bytes_per_second = 2e7});
  return topology;
}

}  // namespace

NamedTopology mixed_topology() {
  return {"mixed", in_blocks({{2, {1, 2.5}}, {1, {2.5}}, {2, {1, 1}}})};
}

std::vector<NamedTopology> all_topologies() {
  return {{"one_rank", one_machine(1)},
          {"machine_of_2", one_machine(2)},
          {"machine_of_3", one_machine(3)},
          {"machine_of_4", one_machine(4)},
          {"machine_of_5", one_machine(5)},
          {"machine_of_7", one_machine(7)},
          {"hosts_of_2", in_blocks({{2}, {2}})},
          {"hosts_of_2_3_2", in_blocks({{2}, {3}, {2}})},
          {"ranks_in_turn", in_turn()},
          {"unequal_links", in_blocks({{1, {1}}, {1, {2.5}}, {1, {0.5}}})},
          {"unequal_hosts", in_blocks({{1, {1}}, {2, {2.5}}, {1, {0.5}}})},
          {"slow_link", slow_link()},
          {"two_rails", in_blocks({{1, {1, 1}}, {1, {1, 1}}})},
          {"two_unequal_rails", in_blocks({{2, {1, 2.5}}, {1, {1, 2.5}}})},
          mixed_topology()};
}

}  // namespace gradwire::test
