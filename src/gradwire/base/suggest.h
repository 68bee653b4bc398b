#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace gradwire {

/// How many letters must be inserted, deleted, replaced or exchanged with their neighbour to make
/// `a` of `b` (optimal string alignment: Damerau, CACM 7(3), 1964).
std::size_t edit_distance(std::string_view a, std::string_view b);

/// The candidate that `name` was probably meant to be: the nearest by edit distance, the first of
/// several. Nothing if even that differs in half of its letters or more.
std::optional<std::string_view> nearest_name(std::string_view name,
                                             std::span<const std::string_view> candidates);

/// What to tell somebody who wrote a name that does not exist:
/// `unknown algorithm "rign" (did you mean "ring"?); known: ring, direct, tree`.
std::string unknown_name(std::string_view what, std::string_view name,
                         std::span<const std::string_view> candidates);

}  // namespace gradwire
