#pragma once

#include <functional>
#include <string>
#include <vector>

#include "gradwire/train/group.h"

namespace gradwire {

/// Runs `act` on every rank and returns the results of all ranks. If it throws on any rank, all
/// ranks throw Exception(invalid_argument) with that rank's number and message. Collective.
std::vector<std::string> collective_try(c10d::ProcessGroup& group,
                                        const std::function<std::string()>& act);

/// Returns rank 0's text on every rank. Collective.
std::string broadcast_text(c10d::ProcessGroup& group, const std::string& text);

}  // namespace gradwire
