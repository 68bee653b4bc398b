#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace gradwire {

/// Minimum number of insertions, deletions, substitutions and transpositions of adjacent letters
/// that turn `b` into `a` (optimal string alignment: Damerau, CACM 7(3), 1964).
std::size_t edit_distance(std::string_view a, std::string_view b);

/// Returns the candidate nearest to `name` by edit distance, the first of several; nullopt if even
/// that one differs in half of its letters or more.
std::optional<std::string_view> nearest_name(std::string_view name,
                                             std::span<const std::string_view> candidates);

/// Message for an unknown name:
/// `unknown algorithm "rign" (did you mean "ring"?); known: ring, direct, tree`.
std::string unknown_name(std::string_view what, std::string_view name,
                         std::span<const std::string_view> candidates);

}  // namespace gradwire
