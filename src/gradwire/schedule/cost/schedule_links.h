#pragma once

#include "gradwire/schedule/cost/cost.h"
#include "gradwire/schedule/cost/link_model.h"

namespace gradwire {

/// Bytes that an op moves. Every scratch slot mirrors a chunk, so this is the size of one or more
/// chunks.
std::size_t length(const Op& op, const Program& program, const ChunkLayout& layout);

/// Returns the resources that all ranks' ops use on a topology, for the link model. `options` gives
/// the CPU time per segment.
LinkMap links_of(const ProgramSet& programs, const Topology& topology, const ChunkLayout& layout,
                 const CostOptions& options);

}  // namespace gradwire
