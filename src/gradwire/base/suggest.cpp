#include "gradwire/base/suggest.h"

#include <algorithm>
#include <limits>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace gradwire {

std::size_t edit_distance(std::string_view a, std::string_view b) {
  // rows[i % 3][j] is the distance between the first i letters of a and the first j of b. A
  // transposition looks two rows back.
  std::vector<std::vector<std::size_t>> rows(3, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t j = 0; j <= b.size(); ++j) rows[0][j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    auto& row = rows[i % 3];
    const auto& above = rows[(i - 1) % 3];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = above[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({replaced, above[j] + 1, row[j - 1] + 1});
      const bool exchanged = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (exchanged) row[j] = std::min(row[j], rows[(i - 2) % 3][j - 2] + 1);
    }
  }
  return rows[a.size() % 3][b.size()];
}

std::optional<std::string_view> nearest_name(std::string_view name,
                                             std::span<const std::string_view> candidates) {
  std::optional<std::string_view> nearest;
  std::size_t smallest = std::numeric_limits<std::size_t>::max();
  for (std::string_view candidate : candidates) {
    const std::size_t distance = edit_distance(name, candidate);
    if (distance >= smallest || 2 * distance >= candidate.size()) continue;
    smallest = distance;
    nearest = candidate;
  }
  return nearest;
}

std::string unknown_name(std::string_view what, std::string_view name,
                         std::span<const std::string_view> candidates) {
  const auto nearest = nearest_name(name, candidates);
  const std::string meant = nearest ? fmt::format(" (did you mean \"{}\"?)", *nearest) : "";
  return fmt::format("unknown {} \"{}\"{}; known: {}", what, name, meant,
                     fmt::join(candidates, ", "));
}

}  // namespace gradwire
