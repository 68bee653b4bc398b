#include "gradwire/cli/bench/explanation.h"

#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "gradwire/base/units.h"
#include "gradwire/comm/forced_algorithms.h"

namespace gradwire {
namespace {

/// Introduces the lines of estimates.
std::string_view heading(Collective collective, std::span<const AlgorithmEstimate> estimates) {
  if (collective == Collective::point_to_point) {
    return "there is no choice of algorithm; the cost model estimates for one message";
  }
  return estimates.size() == 1 ? "there is only one algorithm; the cost model estimates"
                               : "the tuner estimates";
}

std::string_view how_found(const AlgorithmEstimate& estimate) {
  return estimate.measured ? " (measured by gradwire tune)" : "";
}

std::string segments_found(const AlgorithmEstimate& estimate) {
  return estimate.segments > 0 ? fmt::format(", messages in {} segments", estimate.segments) : "";
}

}  // namespace

std::string links_explained(const Environment& environment) {
  const std::string file = environment("GRADWIRE_TOPOLOGY").value_or("");
  return fmt::format("# the tuner uses {}\n",
                     file.empty() ? "assumed links; to use measured ones, run gradwire probe and "
                                    "set GRADWIRE_TOPOLOGY to its file"
                                  : "the links in " + file);
}

std::string overriding_choice(const BenchOptions& options, Collective collective,
                              const Environment& environment) {
  if (!options.algorithms.empty())
    return fmt::format("--algorithm says {}", fmt::join(options.algorithms, ", "));
  const std::string variable = "GRADWIRE_ALGORITHM";
  const ForcedAlgorithms forced =
      value_or_throw(parse_forced_algorithms(environment(variable).value_or(""), variable));
  const auto found = forced.find(collective);
  return found == forced.end() ? "" : fmt::format("{} says {}", variable, found->second);
}

std::string estimates_explained(const BenchCase& what, std::span<const AlgorithmEstimate> estimates,
                                const std::string& overriding) {
  std::string text = fmt::format("# {} {}: {}\n", name_of(what.collective),
                                 format_bytes(what.bytes), heading(what.collective, estimates));
  for (const AlgorithmEstimate& e : estimates) {
    text += fmt::format("#   {:<19} {:>8}: {} step{}, a rank sends {}{}{}\n", e.algorithm,
                        format_duration(e.time), e.steps, e.steps == 1 ? "" : "s",
                        format_bytes(e.bytes_sent), segments_found(e), how_found(e));
  }
  if (!overriding.empty()) text += fmt::format("# the tuner does not choose: {}\n", overriding);
  return text;
}

}  // namespace gradwire
