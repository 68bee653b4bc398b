#pragma once

#include <string>
#include <vector>

#include "gradwire/base/random.h"

namespace gradwire::fuzz {

/// No input is longer, in bytes.
inline constexpr std::size_t kMostInput = 8192;

/// `input` with one to several small changes: bits flipped, bytes put in, taken out, moved and
/// repeated, numbers (binary, little-endian, and decimal) replaced by those at which programs
/// break, parts of `others` put in. The same for the same state of `random`.
std::string mutate(std::string input, const std::vector<std::string>& others, Random& random);

}  // namespace gradwire::fuzz
