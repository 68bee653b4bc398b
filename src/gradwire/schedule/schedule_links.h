#pragma once

#include "gradwire/schedule/cost.h"
#include "gradwire/schedule/link_model.h"

namespace gradwire {

/// Bytes that an op moves: all scratch slots mirror a chunk, so this is a chunk's size, or
/// several's.
std::size_t length(const Op& op, const Program& program, const ChunkLayout& layout);

/// What the ops of all ranks need on a topology, for the link model. Of the options: segments and
/// what these cost processors.
LinkMap links_of(const ProgramSet& programs, const Topology& topology, const ChunkLayout& layout,
                 const CostOptions& options);

}  // namespace gradwire
