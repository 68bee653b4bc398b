#pragma once

#include <string>
#include <string_view>

#include "gradwire/schedule/schedule.h"

/// Parts of a schedule as text, for errors and drawings.
namespace gradwire::schedule {

/// "send", "recv_reduce", ...
std::string_view name_of(OpKind kind);

/// "input", "output", "scratch".
std::string_view name_of(Buffer buffer);

/// "output[3]", "input[0..4)", "nothing" for an empty slice.
std::string describe(const Slice& slice);

/// "recv_reduce input[1] + rank 2 -> output[1]".
std::string describe(const Op& op);

/// "ring all_reduce of 4 ranks".
std::string describe(const Schedule& schedule);

}  // namespace gradwire::schedule
