#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "gradwire/federated/simulated_round.h"

namespace gradwire::federated {

/// Rounds in virtual time, one after the other. Not thread-safe.
class SimulatedRounds {
 public:
  /// Clients check in at the begin of a round and are drawn at once, and their keys are enrolled,
  /// whatever `policy` says of that. Throws as check(), and for stragglers if there is only
  /// one local epoch.
  SimulatedRounds(RoundPolicy policy, SimulatedClients clients, SimulatedWork work,
                  std::uint64_t seed);

  /// Simulates the next round, and returns it; `shape` and `update_bits` (RoundPolicy) are its own.
  const Round& next(UpdateSource& updates, const UpdateShape& shape = {}, int update_bits = 32);

  /// The number of the next round; the first is 1.
  std::int64_t number() const { return number_; }

  /// Goes on after rounds of an earlier run, whose records these are.
  void resume(std::int64_t next_number, Time now, std::vector<ClientRecord> records);

  const SimulatedClients& clients() const { return clients_; }
  std::span<const ClientRecord> records() const { return records_; }
  /// Bytes of all clients in the last round.
  double up_bytes() const { return up_bytes_; }
  double down_bytes() const { return down_bytes_; }
  Time now() const { return now_; }

 private:
  double sum_of(double ClientRecord::*bytes) const;

  RoundPolicy policy_;
  SimulatedClients clients_;
  SimulatedWork work_;
  std::uint64_t seed_;
  std::vector<ClientRecord> records_;
  std::optional<Round> round_;
  std::int64_t number_ = 1;
  Time now_{};
  double up_bytes_ = 0, down_bytes_ = 0;
};

}  // namespace gradwire::federated
