#pragma once

#include <string>
#include <vector>

#include "gradwire/base/random.h"

namespace gradwire::fuzz {

/// Maximum bytes of an input.
inline constexpr std::size_t kMaxInput = 8192;

/// Returns `input` with one to several small changes: bits flipped, bytes inserted, removed, moved
/// and repeated, numbers (little-endian binary, and decimal) replaced by limit values, parts of
/// `others` inserted. Determined by the state of `random`.
std::string mutate(std::string input, const std::vector<std::string>& others, Random& random);

}  // namespace gradwire::fuzz
