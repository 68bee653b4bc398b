#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "gradwire/engine/executor.h"
#include "gradwire/net/sim/sim_network.h"
#include "gradwire/topology/topology.h"

namespace gradwire::engine {

/// A whole job in one thread and in virtual time: the real executors over a simulated network.
class SimulatedJob {
 public:
  /// Creates the transport that a rank uses in place of its network endpoint, which outlives it.
  using Wrap = std::function<std::unique_ptr<net::Transport>(Rank rank, net::Transport& endpoint)>;

  /// One rank per host, with one rail.
  SimulatedJob(std::vector<net::SimPort> ports, const net::SimOptions& network,
               const ExecutorOptions& options, const Wrap& wrap = {});
  /// Rank r runs on hosts[host_of[r]].
  SimulatedJob(std::vector<net::SimHost> hosts, std::vector<int> host_of,
               const net::SimOptions& network, const ExecutorOptions& options,
               const Wrap& wrap = {});

  /// Hosts, rails and ranks as `topology` says. What was measured between two hosts is not
  /// simulated: only ports are.
  SimulatedJob(const topology::Topology& topology, const net::SimOptions& network,
               const ExecutorOptions& options);

  int ranks() const { return static_cast<int>(executors_.size()); }
  Executor& executor(Rank rank) { return *executors_[static_cast<std::size_t>(rank)]; }
  net::SimNetwork& network() { return network_; }
  Time now() const { return network_.now(); }

  /// Advances time until `finished` holds (checked after every event) or `until` is reached.
  /// Returns true if it holds.
  bool run(Time until, const std::function<bool()>& finished);

 private:
  Time next_timer() const;
  void fire_timers();

  void make_executors(int ranks, const ExecutorOptions& options, const Wrap& wrap);

  net::SimNetwork network_;
  std::vector<std::unique_ptr<net::Transport>> wrapped_;
  std::vector<std::unique_ptr<Executor>> executors_;
};

}  // namespace gradwire::engine
