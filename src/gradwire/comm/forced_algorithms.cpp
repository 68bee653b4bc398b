#include "gradwire/comm/forced_algorithms.h"

#include <algorithm>
#include <set>
#include <vector>

#include <fmt/format.h>

#include "gradwire/base/suggest.h"
#include "gradwire/schedule/catalogue.h"

namespace gradwire {
namespace {

tl::unexpected<Error> unknown(std::string_view what, std::string_view name,
                              const std::vector<std::string_view>& known) {
  return failure(ErrorKind::invalid_argument, unknown_name(what, std::string(name), known));
}

bool has(Collective collective, std::string_view algorithm) {
  const auto names = algorithm_names(collective);
  return std::ranges::find(names, algorithm) != names.end();
}

Status force_one(std::string_view collective, std::string_view algorithm,
                 ForcedAlgorithms& forced) {
  const auto found = collective_named(collective);
  if (!found) {
    std::vector<std::string_view> known;
    for (Collective c : all_collectives()) known.push_back(name_of(c));
    return unknown("collective", collective, known);
  }
  if (!has(*found, algorithm)) {
    return unknown(fmt::format("algorithm of {}", collective), algorithm, algorithm_names(*found));
  }
  forced[*found] = algorithm;
  return {};
}

Status force_all(std::string_view algorithm, ForcedAlgorithms& forced) {
  bool any = false;
  std::set<std::string_view> known;
  for (Collective collective : all_collectives()) {
    for (std::string_view name : algorithm_names(collective)) known.insert(name);
    if (!has(collective, algorithm)) continue;
    forced[collective] = algorithm;
    any = true;
  }
  if (any) return {};
  return unknown("algorithm", algorithm, {known.begin(), known.end()});
}

}  // namespace

Result<ForcedAlgorithms> parse_forced_algorithms(std::string_view text, std::string_view source) {
  ForcedAlgorithms forced;
  while (!text.empty()) {
    const std::size_t comma = std::min(text.find(','), text.size());
    const std::string_view entry = text.substr(0, comma);
    text.remove_prefix(std::min(comma + 1, text.size()));
    if (entry.empty()) continue;
    const std::size_t equals = entry.find('=');
    const Status status =
        equals == std::string_view::npos
            ? force_all(entry, forced)
            : force_one(entry.substr(0, equals), entry.substr(equals + 1), forced);
    if (!status) {
      return failure(status.error().kind, fmt::format("{}: {}", source, status.error().message));
    }
  }
  return forced;
}

}  // namespace gradwire
