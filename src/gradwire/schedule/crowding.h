#pragma once

#include <cstddef>
#include <functional>

#include "gradwire/schedule/cost.h"
#include "gradwire/schedule/program_set.h"

namespace gradwire {

/// How many ranks send to the one that hears from the most, where they are more than the partners
/// that a butterfly would give it: those come one after the other, but of more the messages meet.
/// Otherwise 0. Only senders for which `counts(receiver, sender)` holds.
std::size_t senders_that_meet(const ProgramSet& programs,
                              const std::function<bool(Rank, Rank)>& counts);

/// How much longer an operation takes because streams from other hosts meet in the ports that have
/// the most to do: a factor, measured over TCP on shaped links. Where data goes to its owners and
/// back, three streams lose next to nothing of the port's rate, five 3 %, seven a tenth. Where it
/// is passed on, as in trees, streams take from those that are waited for: each beyond the second
/// costs 6.5 %.
double crowding(const ScheduleCost& cost, const Topology& topology);

}  // namespace gradwire
