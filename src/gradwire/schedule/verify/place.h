#pragma once

#include <cstdint>
#include <vector>

#include "gradwire/schedule/schedule.h"

namespace gradwire::proof {

/// Whether the caller passes the same memory as input and output.
enum class Aliasing : std::uint8_t { separate, in_place };

/// The aliasings that a collective allows.
std::vector<Aliasing> aliasings(Collective collective);

/// The memory of a slice: for in-place all_reduce, and on the root of in-place reduce, input[c] is
/// output[c]. For in-place all_gather, rank r's input[0] is its output[r].
Slice place_of(const Schedule& schedule, Rank rank, const Slice& slice, Aliasing aliasing);

/// Returns true if an op copies a slice onto itself, which does nothing.
bool stays_in_place(const Schedule& schedule, Rank rank, const Op& op, Aliasing aliasing);

}  // namespace gradwire::proof
