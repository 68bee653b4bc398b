#pragma once

#include <functional>
#include <string>
#include <vector>

#include "gradwire/train/group.h"

namespace gradwire {

/// Does `act` on every rank, and returns what it returned on each of them. If it threw on any, all
/// ranks throw Exception(invalid_argument) with what that one said, and its number. Collective.
std::vector<std::string> together(c10d::ProcessGroup& group,
                                  const std::function<std::string()>& act);

/// Rank 0's text, on every rank. Collective.
std::string text_of_root(c10d::ProcessGroup& group, const std::string& text);

}  // namespace gradwire
