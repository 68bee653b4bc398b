#pragma once

#include <chrono>

#include "gradwire/topology/topology.h"

/// The links on which costs are compared with textbook formulas.
namespace gradwire::test {

inline constexpr double kLatency = 50e3;  // Nanoseconds.
inline constexpr double kRate = 1.25e9;   // Bytes a second.

inline topology::Topology links(int ranks) {
  return topology::Topology::uniform(
      ranks, {.latency = std::chrono::microseconds(50), .bytes_per_second = kRate});
}

/// T': nanoseconds that `bytes` bytes take on a link.
inline double wire(double bytes) {
  return 1e9 * bytes / kRate;
}

}  // namespace gradwire::test
