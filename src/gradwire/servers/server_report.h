#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "gradwire/base/clock.h"
#include "gradwire/servers/staleness.h"

namespace gradwire::servers {

/// The compute of a worker from one push to the next.
struct Pace {
  Duration mean{};       ///< 0: not known.
  Duration deviation{};  ///< Standard deviation.
};

/// The work of a server so far.
struct ServerReport {
  /// By unit: updates, with those of the runs that this one resumes. Of several servers the most.
  std::vector<std::int64_t> versions;
  std::vector<Staleness> by_unit;    ///< By unit, of applied gradients.
  std::vector<Staleness> by_worker;  ///< The same ones. A group is a worker.
  std::vector<Dropped> dropped;      ///< By worker.
  /// By worker, each member of a group: what it told when workers last met.
  std::vector<Pace> paces;
  double mean_factor = 1;  ///< ServerCore::mean_factor().
  Duration busy{};         ///< Time in which it added, stepped (with waits for sums) or copied.
  int servers = 1;         ///< Whose sum it is.
  Duration elapsed{};      ///< Time since the first gradient.
  /// Servers that were lost, and whose mirrors serve in their place; updates of units that these
  /// did not have; and gradients that workers had sent and that had no answer.
  std::int64_t lost_servers = 0, lost_updates = 0, lost_gradients = 0;

  std::int64_t updates() const;
  /// All units'.
  Staleness staleness() const;
  std::int64_t late() const;
};

/// Adds what another server of the same units and workers has done, each with its part of every
/// unit. `elapsed` is the longest.
void add(ServerReport& sum, const ServerReport& other);

/// The report as integers, for a message.
std::vector<std::int64_t> encode(const ServerReport& report);
/// Throws Exception(corrupted) for anything but what encode() returns.
ServerReport decode_report(std::span<const std::int64_t> integers);

}  // namespace gradwire::servers
