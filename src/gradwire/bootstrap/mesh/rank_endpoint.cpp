#include "gradwire/bootstrap/mesh/rank_endpoint.h"

#include <algorithm>
#include <optional>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace gradwire::bootstrap {
namespace {

using Json = nlohmann::json;

tl::unexpected<Error> malformed_endpoint(const std::string& text) {
  return failure(ErrorKind::corrupted,
                 "the store contains a malformed rank place (do all hosts run the same version of "
                 "gradwire?): " +
                     text.substr(0, 100));
}

template <class T>
T field(const Json& object, const char* name, T otherwise = {}) {
  const auto found = object.find(name);
  if (found == object.end()) return otherwise;
  if constexpr (std::is_same_v<T, std::string>) {
    return found->is_string() ? found->get<T>() : otherwise;
  } else if constexpr (std::is_same_v<T, bool>) {
    return found->is_boolean() ? found->get<T>() : otherwise;
  } else {
    return found->is_number_integer() ? found->get<T>() : otherwise;
  }
}

/// Implausible values count as unknown: 0.
int decode_cores(const Json& json) {
  constexpr std::int64_t kMaxCores = 1 << 20;
  const auto cores = field<std::int64_t>(json, "cores");
  return cores > 0 && cores <= kMaxCores ? static_cast<int>(cores) : 0;
}

std::optional<RailEndpoint> decode_rail(const Json& json) {
  if (!json.is_object()) return std::nullopt;
  const auto address = net::SocketAddress::parse(field<std::string>(json, "address"));
  if (!address) return std::nullopt;
  return RailEndpoint{.address = *address, .interface = field<std::string>(json, "interface")};
}

}  // namespace

std::string RankEndpoint::describe(Rank rank, int rail) const {
  const RailEndpoint& by = rails[static_cast<std::size_t>(rail)];
  const std::string over = by.interface.empty() ? "" : " over " + by.interface;
  return fmt::format("rank {} (host {}, {}{})", rank, host, by.address.to_string(), over);
}

bool same_machine(const RankEndpoint& a, const RankEndpoint& b) {
  return !a.machine.empty() && a.machine == b.machine;
}

int rails_between(const RankEndpoint& a, const RankEndpoint& b) {
  return same_machine(a, b) ? 1 : static_cast<int>(std::min(a.rails.size(), b.rails.size()));
}

std::vector<int> machine_numbers(const std::vector<RankEndpoint>& endpoints) {
  std::vector<int> numbers;
  int next = 0;
  for (std::size_t i = 0; i < endpoints.size(); ++i) {
    const auto before = endpoints.begin() + static_cast<std::ptrdiff_t>(i);
    const auto found = std::find_if(endpoints.begin(), before, [&](const RankEndpoint& other) {
      return same_machine(other, endpoints[i]);
    });
    const auto at = static_cast<std::size_t>(found - endpoints.begin());
    numbers.push_back(found == before ? next++ : numbers[at]);
  }
  return numbers;
}

std::string encode(const RankEndpoint& endpoint) {
  Json rails = Json::array();
  for (const RailEndpoint& rail : endpoint.rails) {
    rails.push_back({{"address", rail.address.to_string()}, {"interface", rail.interface}});
  }
  const Json json = {{"host", endpoint.host},         {"machine", endpoint.machine},
                     {"cores", endpoint.cores},       {"shares_memory", endpoint.shares_memory},
                     {"encrypts", endpoint.encrypts}, {"rails", std::move(rails)}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Result<RankEndpoint> decode_rank_endpoint(const std::string& text) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return malformed_endpoint(text);
  RankEndpoint endpoint = {.host = field<std::string>(json, "host"),
                           .machine = field<std::string>(json, "machine"),
                           .cores = decode_cores(json),
                           .shares_memory = field<bool>(json, "shares_memory"),
                           .encrypts = field<bool>(json, "encrypts"),
                           .rails = {}};
  const Json rails = json.value("rails", Json());
  if (!rails.is_array() || rails.empty() || rails.size() > kMaxRails)
    return malformed_endpoint(text);
  for (const Json& one : rails) {
    auto rail = decode_rail(one);
    if (!rail) return malformed_endpoint(text);
    endpoint.rails.push_back(std::move(*rail));
  }
  return endpoint;
}

}  // namespace gradwire::bootstrap
