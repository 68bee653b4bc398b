#pragma once

#include <cstddef>
#include <vector>

#include "gradwire/schedule/cost/cost.h"
#include "gradwire/topology/topology.h"

namespace gradwire::engine {

struct ScheduleSimulation {
  Duration time{};                         ///< Until the last rank was done.
  std::vector<std::size_t> payload_bytes;  ///< Sent, per rank.
  bool correct = false;                    ///< Every rank ended with the expected data.
  /// By rank and op: the times when its first and its last piece were processed (of a send: passed
  /// to the transport).
  std::vector<std::vector<schedule::Interval>> ops;
};

/// Runs a schedule over `elements` float32 elements (of all chunks together) with the real
/// executors, on the hosts and links of `topology` (see SimulatedJob). The data are integers, so
/// every order of summation gives the same result, which is verified.
ScheduleSimulation simulate(const schedule::Schedule& schedule, const topology::Topology& topology,
                            std::size_t elements, std::size_t segment_bytes);

}  // namespace gradwire::engine
