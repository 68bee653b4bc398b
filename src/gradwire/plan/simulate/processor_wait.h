#pragma once

#include "gradwire/schedule/layout.h"
#include "gradwire/schedule/program_set.h"
#include "gradwire/topology/topology.h"

namespace gradwire {

/// Returns the slowdown of an operation of `seconds` whose streams share a port, as hosts of one
/// machine (network namespaces) share processors: a receiver that reads a small window late leaves
/// the port idle. The factor is 1 + u^3 / 2, where u is the processors' utilization by the
/// operation's bytes: 0.4 ns per byte sent, and per byte received, between hosts (the kernel's
/// copies and packets, checksums, the reduction). Measured on four hosts and two processors: close
/// to 1 at 1 Gb/s, where u is 0.2; 1.05 at 2.5 Gb/s. 1 if each host has its own processors.
double processor_wait(const ProgramSet& programs, const Topology& topology,
                      const ChunkLayout& layout, double seconds);

}  // namespace gradwire
