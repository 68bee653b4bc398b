#include <memory>
#include <utility>
#include <vector>

#include "gradwire/schedule/algorithms/algorithms.h"
#include "gradwire/schedule/algorithms/sums.h"

/// For small data on hosts with several ranks. All ranks send their input to the host's leader.
/// Leaders exchange their hosts' sums; each reduces them in host order and sends the result to its
/// ranks. One message crosses between each pair of hosts in each direction.
namespace gradwire::schedule {
namespace {

Program member_program(Rank leader) {
  ProgramBuilder builder;
  builder.send(leader, input(0));
  builder.recv(leader, output(0));
  return std::move(builder).build();
}

Program leader_program(const topology::Topology& topology, int host) {
  ProgramBuilder builder;
  const auto ranks = topology.ranks_on(host);
  const OpIndex host_sum = reduce_or_copy(builder, ranks.subspan(1), input(0), output(0));
  std::vector<OpIndex> sent;
  for (int other : others_from(host, topology.hosts())) {
    const Rank leader = topology.ranks_on(other).front();
    sent.push_back(builder.send(leader, output(0), {host_sum}));
  }
  Contributions hosts;
  for (int other = 0; other < topology.hosts(); ++other) {
    if (other == host) continue;
    auto& side = other < host ? hosts.lower : hosts.upper;
    side.push_back(receive_to_scratch(builder, topology.ranks_on(other).front(), input(0)));
  }
  const OpIndex total = reduce_in_rank_order(builder, output(0), host_sum, hosts, sent);
  builder.postscale(total);
  for (Rank local : ranks.subspan(1)) builder.send(local, output(0), {total});
  return std::move(builder).build();
}

}  // namespace

Schedule leaders_all_reduce(const topology::Topology& topology) {
  const auto shared = std::make_shared<const topology::Topology>(topology);
  return {.spec = {Collective::all_reduce},
          .ranks = topology.ranks(),
          .chunks = 1,
          .program =
              [shared](Rank rank) {
                const int host = shared->host_of(rank);
                const Rank leader = shared->ranks_on(host).front();
                return rank == leader ? leader_program(*shared, host) : member_program(leader);
              },
          .name = "leaders"};
}

}  // namespace gradwire::schedule
