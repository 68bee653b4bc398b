#include "gradwire/federated/selection.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <utility>

#include "gradwire/base/random.h"
#include "gradwire/base/refuse.h"
#include "gradwire/base/suggest.h"

namespace gradwire::federated {
namespace {

constexpr std::array<std::string_view, 3> kSelections{"uniform", "proportional", "fair"};

/// Moves a random choice of `count` candidates to the front (Fisher and Yates).
void choose(std::vector<Candidate>& candidates, std::size_t count, Random& random) {
  for (std::size_t i = 0; i < count; ++i)
    std::swap(candidates[i], candidates[i + random.below(candidates.size() - i)]);
}

/// Moves `count` candidates to the front, of which each draw takes one with a probability in
/// proportion to 1 / (1 + counted) (Efraimidis and Spirakis, "Weighted random sampling with a
/// reservoir", 2006).
void choose_fairly(std::vector<Candidate>& candidates, std::size_t count, Random& random) {
  std::vector<std::pair<double, Candidate>> keys;
  keys.reserve(candidates.size());
  for (const Candidate& one : candidates)
    keys.emplace_back(std::log(1 - random.unit()) * static_cast<double>(1 + one.counted), one);
  const auto end = keys.begin() + static_cast<std::ptrdiff_t>(count);
  std::ranges::nth_element(keys, end, [](const auto& a, const auto& b) {
    return std::pair(-a.first, a.second.client) < std::pair(-b.first, b.second.client);
  });
  std::ranges::transform(keys, candidates.begin(), [](const auto& key) { return key.second; });
}

std::vector<Drawn> draw_by_samples(const std::vector<Candidate>& candidates, int count,
                                   Random& random) {
  std::vector<std::int64_t> ends;
  std::int64_t samples = 0;
  for (const Candidate& one : candidates) ends.push_back(samples += one.samples);
  std::vector<std::int64_t> times(candidates.size());
  for (int i = 0; i < count; ++i) {
    const std::int64_t sample = random.between(0, samples - 1);
    ++times[static_cast<std::size_t>(std::ranges::upper_bound(ends, sample) - ends.begin())];
  }
  std::vector<Drawn> drawn;
  for (std::size_t i = 0; i < candidates.size(); ++i)
    if (times[i] > 0) drawn.push_back({candidates[i].client, candidates[i].samples, times[i]});
  return drawn;
}

}  // namespace

std::string_view name_of(Selection selection) {
  return kSelections[static_cast<std::size_t>(selection)];
}

Selection selection_named(std::string_view name) {
  const auto found = std::ranges::find(kSelections, name);
  if (found == kSelections.end()) refuse(unknown_name("selection", name, kSelections));
  return static_cast<Selection>(found - kSelections.begin());
}

std::vector<Drawn> draw(std::vector<Candidate> candidates, int count, Selection selection,
                        std::uint64_t seed) {
  Random random(seed);
  std::ranges::sort(candidates, {}, &Candidate::client);
  if (selection == Selection::proportional) return draw_by_samples(candidates, count, random);
  const std::size_t size = std::min(candidates.size(), static_cast<std::size_t>(count));
  if (selection == Selection::fair)
    choose_fairly(candidates, size, random);
  else
    choose(candidates, size, random);
  candidates.resize(size);
  std::ranges::sort(candidates, {}, &Candidate::client);
  std::vector<Drawn> drawn;
  for (const Candidate& one : candidates) drawn.push_back({one.client, one.samples, 1});
  return drawn;
}

}  // namespace gradwire::federated
