#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>

#include "gradwire/base/types.h"
#include "gradwire/federated/remote/messages.h"

namespace gradwire::federated {

/// A client's cost; or its limits, where 0 is none.
struct ClientCost {
  double compute_seconds = 0;
  double up_bytes = 0, down_bytes = 0;
};

struct CostLimits {
  ClientCost round, day;
  std::int64_t memory_bytes = 0;
};

/// Today's cost of a client, and its last round, in a file, so that a restarted client keeps
/// to its limits and takes part in no round twice. A day is one of UTC. Not thread-safe.
class ClientCosts {
 public:
  /// `time_of_day` as gradwire::time_of_day(). Throws Exception(invalid_argument) if the file is
  /// another, (system) if it cannot be read.
  ClientCosts(std::filesystem::path file, const CostLimits& limits,
              std::function<Duration()> time_of_day);

  /// The client does not take the work: why, and when it could ask again.
  struct Declined {
    std::string reason;
    double seconds = 0;
  };
  /// nullopt if the work is within the limits. The time of a step is that of the last round; until
  /// one is known, only what has been spent counts.
  std::optional<Declined> check(const Offer& offer);
  /// Returns nullopt if an upload of `bytes` is within the limits.
  std::optional<Declined> check_upload(double bytes);

  /// The round begins; kept in the file before anything is sent. Fails with refused if it is not
  /// newer than the last one, or with system.
  Status begin(std::int64_t round);
  /// Adds to what was given. Fails with system.
  Status add(const ClientCost& cost);
  /// add(), from which the time of a step follows, too.
  Status add_compute(double seconds, std::int64_t steps);

  /// Left for the training of this round, by the limits; infinite without any.
  double compute_seconds_left();
  const ClientCost& today();
  std::int64_t last_round() const { return last_round_; }

 private:
  struct Need {
    const char* what;
    double needed, spent, of_round, of_day;
  };
  std::optional<Declined> check(const Need& one) const;
  Need upload_of(double bytes) const {
    return {"bytes up", bytes, today_.up_bytes, limits_.round.up_bytes, limits_.day.up_bytes};
  }
  void turn_the_day();
  void read(std::string_view text);
  Status write() const;

  std::filesystem::path file_;
  CostLimits limits_;
  std::function<Duration()> time_of_day_;
  std::int64_t day_ = 0;  ///< Since 1970-01-01.
  std::int64_t last_round_ = -1;
  double seconds_per_step_ = 0;  ///< 0: not known.
  double round_seconds_ = 0;     ///< Compute, in this round.
  ClientCost today_;
};

}  // namespace gradwire::federated
