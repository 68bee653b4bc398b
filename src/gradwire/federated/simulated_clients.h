#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "gradwire/base/types.h"
#include "gradwire/federated/device_model.h"
#include "gradwire/federated/selection.h"

namespace gradwire::federated {

/// Throws Exception(invalid_argument) for shares out of range.
void check(const DeviceModel& model);

/// A client's behaviour after it was asked.
struct Fate {
  /// Share of its local work after which it vanishes; above 1 after it is ready, up to 2 during its
  /// upload.
  std::optional<double> vanishes;
  /// Local epochs that it does; none: all.
  std::optional<int> epochs;
};

/// Clients as values: speeds, and a seed that decides the rest. No client has memory of its own, so
/// there may be millions. Thread-safe.
class SimulatedClients {
 public:
  /// `samples`: of each client's training data.
  SimulatedClients(const DeviceModel& model, std::vector<std::int64_t> samples, std::uint64_t seed);

  int size() const { return static_cast<int>(samples_.size()); }
  bool has_stragglers() const { return model_.stragglers > 0; }
  std::int64_t samples(ClientId client) const { return samples_[index(client)]; }

  Duration compute_time(ClientId client) const;  ///< All local epochs'.
  Duration up_time(ClientId client, double bytes) const;
  Duration down_time(ClientId client, double bytes) const;

  bool checks_in(ClientId client, std::int64_t round) const;
  /// `epochs`: local epochs of the plan, of which a straggler does 1 to epochs - 1.
  Fate fate(ClientId client, std::int64_t round, int epochs) const;

 private:
  static std::size_t index(ClientId client) { return static_cast<std::size_t>(client); }
  struct Speed {
    float compute, up, down;
  };

  DeviceModel model_;
  std::vector<std::int64_t> samples_;
  std::vector<Speed> speeds_;
  std::uint64_t seed_;
};

}  // namespace gradwire::federated
