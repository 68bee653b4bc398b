#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "gradwire/comm/executor.h"
#include "gradwire/net/sim/sim_network.h"
#include "gradwire/schedule/cost.h"
#include "gradwire/topology/topology.h"

namespace gradwire {

/// A whole job in one thread and virtual time: the real executors over a simulated network.
class SimulatedJob {
 public:
  /// What a rank uses in place of its endpoint of the network, which outlives it.
  using Wrap = std::function<std::unique_ptr<Transport>(Rank rank, Transport& endpoint)>;

  /// One rank a host, with one rail.
  SimulatedJob(std::vector<SimPort> ports, const SimOptions& network,
               const ExecutorOptions& options, const Wrap& wrap = {});
  /// Rank r runs on hosts[host_of[r]].
  SimulatedJob(std::vector<SimHost> hosts, std::vector<int> host_of, const SimOptions& network,
               const ExecutorOptions& options, const Wrap& wrap = {});

  int ranks() const { return static_cast<int>(executors_.size()); }
  Executor& executor(Rank rank) { return *executors_[static_cast<std::size_t>(rank)]; }
  SimNetwork& network() { return network_; }
  Time now() const { return network_.now(); }

  /// Lets time pass until `finished` holds (asked after every event) or it is `until`. Returns
  /// whether it holds.
  bool run(Time until, const std::function<bool()>& finished);

 private:
  Time next_timer() const;
  void fire_timers();

  void make_executors(int ranks, const ExecutorOptions& options, const Wrap& wrap);

  SimNetwork network_;
  std::vector<std::unique_ptr<Transport>> wrapped_;
  std::vector<std::unique_ptr<Executor>> executors_;
};

struct ScheduleSimulation {
  Duration time{};                         ///< Until the last rank was done.
  std::vector<std::size_t> payload_bytes;  ///< Sent, per rank.
  bool correct = false;                    ///< Every rank ended with the right data.
  /// By rank and op: when its first piece had passed (a send's: to the transport), and its last.
  std::vector<std::vector<Interval>> ops;
};

/// Runs a schedule over `elements` float32 elements of all chunks together, by the real executors
/// over hosts and links as `topology` says (what was measured between two hosts is not simulated:
/// only ports are). The data are integers, so that every order of summation gives the
/// same and the result can be checked.
ScheduleSimulation simulate(const Schedule& schedule, const Topology& topology,
                            std::size_t elements, std::size_t segment_bytes);

}  // namespace gradwire
