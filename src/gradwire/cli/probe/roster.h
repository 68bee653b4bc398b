#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gradwire/base/error.h"
#include "gradwire/base/types.h"
#include "gradwire/net/address.h"
#include "gradwire/topology/cluster.h"

namespace gradwire::cli {

/// Entry that a rank shares before the measurement.
struct RosterEntry {
  std::string host;
  std::string machine;
  std::string kernel;
  int cores = 0;
  std::string token;  ///< Token of its echoes.
  std::vector<topology::MeasuredRail> rails;
  std::vector<net::SocketAddress> echoes;  ///< By rail.
};

std::string to_json(const RosterEntry& entry);

/// Groups ranks by machine, in the order of their first ranks.
class Machines {
 public:
  /// `names`: machine ids, by rank.
  explicit Machines(const std::vector<std::string>& names = {});

  int count() const { return static_cast<int>(ranks_on_.size()); }
  int number_of(Rank rank) const { return number_of_[static_cast<std::size_t>(rank)]; }

  /// In ascending order.
  std::span<const Rank> ranks_on(int machine) const {
    return ranks_on_[static_cast<std::size_t>(machine)];
  }

  /// Returns the rank that measures for a machine.
  Rank leader(int machine) const { return ranks_on(machine).front(); }

 private:
  std::vector<int> number_of_;
  std::vector<std::vector<Rank>> ranks_on_;
};

/// The ranks' hosts (machines). A host with the name of an earlier one gets a number appended.
class Roster {
 public:
  /// Parses all ranks' entries. Fails with invalid_argument if one is malformed.
  static Result<Roster> of(const std::vector<std::string>& entries);

  int count() const { return machines_.count(); }
  int host_of(Rank rank) const { return machines_.number_of(rank); }
  const RosterEntry& entry(Rank rank) const { return entries_[static_cast<std::size_t>(rank)]; }

  std::span<const Rank> ranks_on(int host) const { return machines_.ranks_on(host); }
  Rank leader(int host) const { return machines_.leader(host); }

  /// Returns for each host a number of its kernel.
  std::vector<int> kernels() const;

  /// Returns the hosts without measurements.
  std::vector<topology::MeasuredHost> hosts() const;

 private:
  std::vector<RosterEntry> entries_;
  Machines machines_;
};

/// Two hosts that measure each other.
using HostPair = std::pair<int, int>;

/// Returns all pairs of hosts 0 .. n-1, n = machines.size(), in rounds of pairs that do not disturb
/// each other. No two pairs of a round share a host or a machine: hosts on one machine, such as
/// containers, share its processors. machines[h] is host h's machine. If every host is on a
/// separate machine there are n - 1 rounds, or n if n is odd.
std::vector<std::vector<HostPair>> rounds_of_pairs(const std::vector<int>& machines);

}  // namespace gradwire::cli
