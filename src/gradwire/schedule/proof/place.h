#pragma once

#include <cstdint>
#include <vector>

#include "gradwire/schedule/schedule.h"

namespace gradwire::proof {

/// Whether the caller passes one piece of memory as input and output, or two.
enum class Aliasing : std::uint8_t { separate, in_place };

/// Those that a collective allows.
std::vector<Aliasing> aliasings(Collective collective);

/// Where a slice really lies: in all_reduce in place, and on the root of reduce, input[c] is
/// output[c]; in all_gather in place, rank r's input[0] is its output[r].
Slice place_of(const Schedule& schedule, Rank rank, const Slice& slice, Aliasing aliasing);

/// Whether an op copies a place onto itself, that is, does nothing.
bool stays_in_place(const Schedule& schedule, Rank rank, const Op& op, Aliasing aliasing);

}  // namespace gradwire::proof
