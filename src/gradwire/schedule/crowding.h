#pragma once

#include <cstddef>
#include <functional>

#include "gradwire/schedule/program_set.h"

namespace gradwire {

/// How many ranks send to the one that hears from the most, where they are more than the partners
/// that a butterfly would give it: those come one after the other, but of more the messages meet.
/// Otherwise 0. Only senders for which `counts(receiver, sender)` holds.
std::size_t senders_that_meet(const ProgramSet& programs,
                              const std::function<bool(Rank, Rank)>& counts);

/// How much longer an operation takes because so many TCP streams meet in one port: a factor.
/// Measured over shaped links: three lose next to nothing of its rate, five 3 %, seven a tenth.
double crowding_of(std::size_t streams);

}  // namespace gradwire
