#include "gradwire/cli/launch/hosts.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <numeric>

#include <fmt/format.h>
#include <pwd.h>
#include <unistd.h>

#include "gradwire/base/error.h"
#include "gradwire/base/suggest.h"
#include "gradwire/net/address.h"
#include "gradwire/topology/interfaces.h"

namespace gradwire::cli {
namespace {

constexpr std::string_view kBlank = " \t\r";
constexpr std::array<std::string_view, 4> kHostfileKeys{"slots", "address", "max_slots",
                                                        "max-slots"};

[[noreturn]] void refuse_hosts(const std::string& where, const std::string& problem) {
  throw Exception(ErrorKind::invalid_argument, where + ": " + problem);
}

int parse_slots(std::string_view text, const std::string& where) {
  int slots = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), slots);
  if (error == std::errc() && end == text.data() + text.size() && slots >= 1 &&
      slots <= kMaxRanks) {
    return slots;
  }
  refuse_hosts(where,
               fmt::format("\"{}\" is not a number of slots: expected 1 to {}", text, kMaxRanks));
}

/// A name that begins with "-" would be parsed as an option of the remote shell.
void check_name(std::string_view name, const std::string& where) {
  if (name.empty()) refuse_hosts(where, "a host name is empty");
  if (name.front() == '-') refuse_hosts(where, fmt::format("\"{}\" is not a host name", name));
}

struct HostText {
  std::string name;
  std::optional<std::string_view> slots;
};

/// Splits "user@[fd00::1]:2". What follows the bracket must be slots.
HostText split_bracketed(std::string_view text, std::size_t open, const std::string& where) {
  const std::size_t close = text.find(']', open);
  const std::string_view rest = close == std::string_view::npos ? "" : text.substr(close + 1);
  if (close == std::string_view::npos || (!rest.empty() && rest.front() != ':')) {
    refuse_hosts(where,
                 fmt::format("\"{}\": expected an IPv6 address as [fd00::1] or [fd00::1]:2", text));
  }
  HostText split{std::string(text.substr(0, open)), std::nullopt};
  split.name += text.substr(open + 1, close - open - 1);
  if (!rest.empty()) split.slots = rest.substr(1);
  return split;
}

/// Splits "name" or "name:slots". Text with more than one colon is an IPv6 address.
HostText split_host(std::string_view text, const std::string& where) {
  if (const auto open = text.find('['); open != std::string_view::npos) {
    return split_bracketed(text, open, where);
  }
  const std::size_t colon = text.find(':');
  if (colon == std::string_view::npos || colon != text.rfind(':')) {
    return {std::string(text), std::nullopt};
  }
  return {std::string(text.substr(0, colon)), text.substr(colon + 1)};
}

HostEntry parse_host(std::string_view text, const std::string& where) {
  const HostText split = split_host(text, where);
  HostEntry host;
  host.name = split.name;
  check_name(host.name, where);
  if (split.slots) host.slots = parse_slots(*split.slots, where);
  return host;
}

void add(std::vector<HostEntry>& hosts, HostEntry host) {
  const auto same = [&](const HostEntry& other) { return other.name == host.name; };
  const auto known = std::find_if(hosts.begin(), hosts.end(), same);
  if (known == hosts.end()) {
    hosts.push_back(std::move(host));
  } else {
    known->slots = known->slots.value_or(1) + host.slots.value_or(1);
  }
}

std::string_view take(std::string_view& rest, std::string_view separators) {
  const std::string_view head = rest.substr(0, rest.find_first_of(separators));
  rest.remove_prefix(std::min(head.size() + 1, rest.size()));
  return head;
}

std::vector<std::string_view> words_of(std::string_view line) {
  std::vector<std::string_view> words;
  while (!line.empty()) {
    const std::string_view word = take(line, kBlank);
    if (!word.empty()) words.push_back(word);
  }
  return words;
}

void apply_setting(HostEntry& host, std::string_view setting, const std::string& where) {
  std::string_view value = setting;
  const std::string_view key = take(value, "=");
  if (key.size() == setting.size()) {
    refuse_hosts(where, fmt::format("\"{}\": expected key=value, such as slots=2", setting));
  }
  if (key == "slots") {
    host.slots = parse_slots(value, where);
  } else if (key == "address") {
    check_name(value, where);
    host.address = value;
  } else if (std::find(kHostfileKeys.begin(), kHostfileKeys.end(), key) == kHostfileKeys.end()) {
    refuse_hosts(where, unknown_name("setting", key, kHostfileKeys));
  }
}

}  // namespace

std::vector<HostEntry> parse_hosts(std::string_view list) {
  std::vector<HostEntry> hosts;
  std::string_view rest = list;
  do {
    add(hosts, parse_host(take(rest, ","), fmt::format("--hosts {}", list)));
  } while (!rest.empty());
  if (list.ends_with(',')) refuse_hosts(fmt::format("--hosts {}", list), "a host name is empty");
  return hosts;
}

std::vector<HostEntry> parse_hostfile(std::string_view text, const std::string& path) {
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  std::vector<HostEntry> hosts;
  for (int line_number = 1; !text.empty(); ++line_number) {
    std::string_view line = take(text, "\n");
    const std::vector<std::string_view> words = words_of(take(line, "#"));
    if (words.empty()) continue;
    const std::string where = fmt::format("{}:{}", path, line_number);
    HostEntry host = parse_host(words.front(), where);
    for (std::size_t i = 1; i < words.size(); ++i) apply_setting(host, words[i], where);
    add(hosts, std::move(host));
  }
  if (hosts.empty()) refuse_hosts(path, "the hostfile names no host");
  return hosts;
}

std::string address_of(const HostEntry& host) {
  if (!host.address.empty()) return host.address;
  return host.name.substr(host.name.find('@') + 1);
}

std::string this_host_name() {
  return net::host_name();
}

namespace {

/// Returns true if `name` is an address of this host that others reach, such as 10.77.0.1.
bool is_own_address(const std::string& name) {
  const auto address = net::SocketAddress::of(name, 0);
  if (!address || address->is_loopback()) return false;
  const auto all = topology::list_interfaces();
  return all && !topology::interface_with_address(address->host(), *all).empty();
}

bool is_this_user(std::string_view name) {
  const passwd* own = ::getpwuid(::geteuid());
  return own != nullptr && name == own->pw_name;
}

}  // namespace

bool is_this_host(const HostEntry& host) {
  std::string name = host.name;
  if (const auto at = name.find('@'); at != std::string::npos) {
    if (!is_this_user(name.substr(0, at))) return false;
    name.erase(0, at + 1);
  }
  if (name == "localhost" || name == "127.0.0.1" || name == "::1") return true;
  const std::string own = this_host_name();
  return name == own || name == own.substr(0, own.find('.')) || is_own_address(name);
}

namespace {

/// Returns the number of ranks on each host: hosts are filled in order. Throws
/// Exception(invalid_argument) if the slots do not suffice.
std::vector<int> fill(const std::vector<HostEntry>& hosts, int ranks) {
  std::vector<int> counts;
  int left = ranks;
  for (const HostEntry& host : hosts) {
    counts.push_back(std::min(left, host.slots.value_or(1)));
    left -= counts.back();
  }
  if (left > 0) {
    throw Exception(ErrorKind::invalid_argument,
                    fmt::format("{} ranks do not fit into the {} slots of the hosts: add slots "
                                "(a:2,b:2, or slots=2 in the hostfile), or start fewer ranks",
                                ranks, ranks - left));
  }
  return counts;
}

std::vector<int> spread(std::size_t hosts, int ranks) {
  std::vector<int> counts;
  for (int host = 0; host < static_cast<int>(hosts); ++host) {
    const int n = static_cast<int>(hosts);
    counts.push_back(ranks / n + (host < ranks % n ? 1 : 0));
  }
  return counts;
}

int all_slots(const std::vector<HostEntry>& hosts) {
  return std::accumulate(hosts.begin(), hosts.end(), 0, [](int sum, const HostEntry& host) {
    return std::min(sum + host.slots.value_or(1), kMaxRanks + 1);
  });
}

}  // namespace

std::vector<Placement> place_ranks(const std::vector<HostEntry>& hosts, std::optional<int> ranks) {
  const int total = ranks.value_or(all_slots(hosts));
  if (total < 1 || total > kMaxRanks) {
    throw Exception(ErrorKind::invalid_argument,
                    fmt::format("{} ranks: expected 1 to {}", total, kMaxRanks));
  }
  const bool any_slots = std::any_of(hosts.begin(), hosts.end(),
                                     [](const HostEntry& h) { return h.slots.has_value(); });
  const std::vector<int> counts = any_slots ? fill(hosts, total) : spread(hosts.size(), total);
  std::vector<Placement> placements;
  for (std::size_t host = 0; host < counts.size(); ++host) {
    for (int local = 0; local < counts[host]; ++local) {
      placements.push_back({static_cast<Rank>(placements.size()), host, local, counts[host]});
    }
  }
  return placements;
}

}  // namespace gradwire::cli
