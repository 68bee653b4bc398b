#include <algorithm>
#include <filesystem>
#include <optional>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "gradwire/base/file.h"
#include "gradwire/base/json_fields.h"
#include "gradwire/base/refuse.h"
#include "gradwire/base/units.h"
#include "gradwire/plan/network.h"
#include "gradwire/schedule/cost/bus_bandwidth.h"

namespace gradwire::plan {
namespace {

using schedule::Collective;

/// A bandwidth needs a message that is not shorter, a latency one that is not longer.
constexpr double kMinLarge = 1 << 20, kMaxSmall = 4096;

/// One all_reduce of `gradwire bench --json`.
struct BenchedAllReduce {
  std::string engine;
  double bytes = 0, seconds = 0;
  int ranks = 0;
};

std::vector<BenchedAllReduce> read_all_reduces(const std::string& file) {
  const auto read =
      read_json_fields(value_or_throw(read_file(file)), "rows of " + file, [](JsonFields fields) {
        std::vector<BenchedAllReduce> all;
        for (JsonFields row : fields.objects("rows", 0)) {
          // Rows of peers (`--compare`) have no engine.
          BenchedAllReduce one{
              row.text(row.has("engine") ? "engine" : "system"), row.number("bytes", 0, 1e15),
              1e-6 * row.number("median_us", 0, 1e15), row.integer("ranks", 1, 1 << 24)};
          const bool counts = row.text("collective") == "all_reduce" && one.ranks > 1 &&
                              one.seconds > 0 && row.integer_or("wrong", 0, 0) == 0;
          if (counts) all.push_back(std::move(one));
        }
        return all;
      });
  return value_or_throw(read);
}

/// The fastest of the messages of one size counts.
bool is_better(const BenchedAllReduce& one, const std::optional<BenchedAllReduce>& other,
               bool larger) {
  if (!other) return true;
  if (one.bytes == other->bytes) return one.seconds < other->seconds;
  return (one.bytes > other->bytes) == larger;
}

Network measured_network(const std::string& engine, const std::string& file) {
  std::optional<BenchedAllReduce> large, small;
  std::set<std::string> engines;
  for (const BenchedAllReduce& one : read_all_reduces(file)) {
    engines.insert(one.engine);
    if (one.engine != engine) continue;
    if (one.bytes >= kMinLarge && is_better(one, large, true)) large = one;
    if (one.bytes <= kMaxSmall && is_better(one, small, false)) small = one;
  }
  if (!large) {
    refuse(
        "--bus-bandwidth {}: no row is an all_reduce of 1 MiB or more among 2 ranks or more with "
        "engine {}{}; measure with gradwire bench all_reduce --engine {} --sizes 4,64M --json",
        file, engine,
        engines.empty() ? "" : fmt::format(" (engines: {})", fmt::join(engines, ", ")), engine);
  }
  Network network{.name = engine + ", measured", .source = "gradwire bench: " + file};
  const auto moved = [](const BenchedAllReduce& one) {
    return schedule::bus_factor(Collective::all_reduce, one.ranks) * one.bytes;
  };
  network.bytes_per_second = moved(*large) / large->seconds;
  if (!small) return network;
  const double hops = schedule::small_operation_hops(Collective::all_reduce, small->ranks);
  network.latency = std::max(0.0, small->seconds - moved(*small) / network.bytes_per_second) / hops;
  return network;
}

}  // namespace

Network network_of_engine(const std::string& engine, const std::string& bandwidth) {
  Network network;
  if (std::filesystem::is_regular_file(bandwidth)) {
    network = measured_network(engine, bandwidth);
  } else {
    const Result<double> rate = parse_rate(bandwidth);
    if (!rate || *rate <= 0) {
      refuse(
          "--bus-bandwidth {}: expected a rate such as 42GB/s, or a file of gradwire bench "
          "all_reduce --json",
          bandwidth);
    }
    network = {.name = fmt::format("{} at {}", engine, bandwidth),
               .bytes_per_second = *rate,
               .source = "given: --bus-bandwidth"};
  }
  network.engine = engine;
  network.by_bus_bandwidth = true;
  return network;
}

}  // namespace gradwire::plan
