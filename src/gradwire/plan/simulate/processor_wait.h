#pragma once

#include "gradwire/schedule/layout.h"
#include "gradwire/schedule/program_set.h"
#include "gradwire/topology/topology.h"

namespace gradwire {

/// How much longer an operation of `seconds` whose streams meet in one port takes because hosts of
/// one machine share processors, as namespaces do: who comes late to read a small window leaves the
/// port idle. A factor, 1 + u^3 / 2, where u is the part of the processors that the operation's
/// bytes keep busy (0.4 ns a byte sent, and again a byte received, between hosts: the kernel's
/// copies and packets, checksums, the reduction). Measured on four hosts and two processors: next
/// to nothing at 1 Gb/s, where u is 0.2, a twentieth at 2.5 Gb/s. 1 where each host has processors
/// of its own.
double processor_wait(const ProgramSet& programs, const Topology& topology,
                      const ChunkLayout& layout, double seconds);

}  // namespace gradwire
