#include "gradwire/topology/interfaces.h"

#include <algorithm>
#include <cerrno>
#include <memory>
#include <system_error>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>

namespace gradwire::topology {
namespace {

/// Returns "" for address families other than IPv4 and IPv6.
std::string numeric_host(const sockaddr* address) {
  if (address == nullptr) return "";
  const bool ipv4 = address->sa_family == AF_INET;
  if (!ipv4 && address->sa_family != AF_INET6) return "";
  char text[NI_MAXHOST] = "";
  const auto size = static_cast<socklen_t>(ipv4 ? sizeof(sockaddr_in) : sizeof(sockaddr_in6));
  getnameinfo(address, size, text, sizeof text, nullptr, 0, NI_NUMERICHOST);
  return text;
}

bool is_ipv4(const std::string& address) {
  return address.find(':') == std::string::npos;
}

Interface& named(const char* name, std::vector<Interface>& interfaces) {
  const auto found = std::ranges::find(interfaces, name, &Interface::name);
  if (found != interfaces.end()) return *found;
  return interfaces.emplace_back(Interface{.name = name});
}

std::vector<std::string_view> entries_of(std::string_view list) {
  std::vector<std::string_view> entries;
  while (!list.empty()) {
    std::string_view entry = list.substr(0, list.find(','));
    list.remove_prefix(std::min(entry.size() + 1, list.size()));
    entry.remove_prefix(std::min(entry.find_first_not_of(" \t"), entry.size()));
    entry = entry.substr(0, entry.find_last_not_of(" \t") + 1);
    if (!entry.empty()) entries.push_back(entry);
  }
  return entries;
}

bool is_usable(const Interface& one) {
  return one.up && !one.addresses.empty();
}

/// Returns the interface with exactly this name, or else those whose names begin with it.
std::vector<Interface> matching(std::string_view entry, const std::vector<Interface>& all) {
  std::vector<Interface> found;
  std::ranges::copy_if(all, std::back_inserter(found),
                       [&](const Interface& one) { return one.name == entry; });
  if (!found.empty()) return found;
  std::ranges::copy_if(all, std::back_inserter(found),
                       [&](const Interface& one) { return one.name.starts_with(entry); });
  // The kernel's order may differ between hosts.
  std::ranges::sort(found, {},
                    [](const Interface& one) { return std::pair(one.name.size(), one.name); });
  return found;
}

tl::unexpected<Error> none_for(std::string_view entry, bool exists,
                               const std::vector<Interface>& all) {
  const char* what =
      exists ? "is down or has no address" : "is not the name or prefix of any interface";
  return failure(ErrorKind::invalid_argument,
                 fmt::format("network interface \"{}\" {}; this host has {}", entry, what,
                             describe_interfaces(all)));
}

std::string describe_one(const Interface& one) {
  if (!one.up) return one.name + " (down)";
  if (one.addresses.empty()) return one.name + " (no address)";
  return fmt::format("{} ({})", one.name, fmt::join(one.addresses, ", "));
}

}  // namespace

Result<std::vector<Interface>> list_interfaces() {
  ifaddrs* head = nullptr;
  if (getifaddrs(&head) != 0) {
    return failure(ErrorKind::system,
                   "cannot list the network interfaces: " + std::generic_category().message(errno));
  }
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(head, &freeifaddrs);
  std::vector<Interface> interfaces;
  for (const ifaddrs* entry = head; entry != nullptr; entry = entry->ifa_next) {
    Interface& one = named(entry->ifa_name, interfaces);
    one.up = (entry->ifa_flags & IFF_UP) != 0;
    one.loopback = (entry->ifa_flags & IFF_LOOPBACK) != 0;
    if (std::string host = numeric_host(entry->ifa_addr); !host.empty()) {
      one.addresses.push_back(std::move(host));
    }
  }
  for (Interface& one : interfaces) std::ranges::stable_partition(one.addresses, is_ipv4);
  return interfaces;
}

Result<std::vector<Interface>> choose_interfaces(std::string_view wanted,
                                                 const std::vector<Interface>& all) {
  std::vector<Interface> chosen;
  const std::vector<std::string_view> entries = entries_of(wanted);
  if (entries.empty()) return none_for(wanted, false, all);
  for (const std::string_view entry : entries) {
    std::vector<Interface> found = matching(entry, all);
    const bool exists = !found.empty();
    std::erase_if(found, [](const Interface& one) { return !is_usable(one); });
    if (found.empty()) return none_for(entry, exists, all);
    for (Interface& one : found) {
      const bool known = std::ranges::find(chosen, one.name, &Interface::name) != chosen.end();
      if (!known) chosen.push_back(std::move(one));
    }
  }
  return chosen;
}

std::string interface_with_address(std::string_view address, const std::vector<Interface>& all) {
  for (const Interface& one : all) {
    if (std::ranges::find(one.addresses, address) != one.addresses.end()) return one.name;
    if (one.loopback && address.starts_with("127.")) return one.name;
  }
  return "";
}

std::string describe_interfaces(const std::vector<Interface>& all) {
  std::vector<std::string> parts;
  std::ranges::transform(all, std::back_inserter(parts), describe_one);
  return parts.empty() ? "none" : fmt::format("{}", fmt::join(parts, ", "));
}

}  // namespace gradwire::topology
