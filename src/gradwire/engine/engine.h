#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gradwire/engine/engine_traits.h"
#include "gradwire/engine/executor.h"
#include "gradwire/engine/operations/operation.h"
#include "gradwire/engine/posted_work.h"

namespace gradwire::engine {

/// Executes operations: a Communicator posts to it, and a Work waits on it. Thread-safe.
class Engine {
 public:
  virtual ~Engine() = default;
  virtual void post(OperationRequest request) = 0;
  /// Posts several operations that start together, in this order.
  virtual void post(std::vector<OperationRequest> requests) = 0;
  virtual Time now() const = 0;
  /// Returns when `work` is done, or at `until`.
  virtual void wait(const PostedWork& work, Time until) = 0;
  /// Changes the number of operations in flight for which no thread will wait. An engine whose
  /// operations complete by themselves ignores it.
  virtual void drive_in_background(int /*change*/) {}
  virtual void abort(Error error) = 0;
  /// Executor::abort_with().
  virtual void abort_with(Rank peer, Error error) = 0;
  enum class Close : std::uint8_t {
    completing,  ///< Operations that other ranks may need complete first.
    at_once,     ///< Operations in flight fail, here and on the peers.
  };
  /// Says goodbye to the peers and stops. Nothing may be posted afterwards. Idempotent. `failure`:
  /// why this rank leaves early, for the peers' errors, such as "after an exception: ..."; "" if it
  /// does not.
  virtual void close(Close how, const std::string& failure) = 0;
  /// Zeros if it does not count.
  virtual Executor::Traffic traffic() = 0;

  virtual EngineTraits traits() const { return {}; }
  /// Makes lanes of a group usable, for engines that must prepare them. Collective over its ranks.
  virtual void open_lanes(std::uint16_t /*group*/, int /*first*/, int /*count*/) {}
  /// Makes a group of ranks of the group `parent`, collective over them, and returns its number.
  /// nullopt: the ranks agree on a number by messages.
  virtual std::optional<std::uint16_t> open_group(std::uint16_t /*parent*/,
                                                  std::span<const Rank> /*ranks*/) {
    return std::nullopt;
  }

  /// Records that an operation has ended. Called under the engine's lock.
  void ended(std::shared_ptr<PostedWork> work) { ended_.push_back(std::move(work)); }

 protected:
  using Ended = std::vector<std::shared_ptr<PostedWork>>;

  /// Returns the operations that have ended since the last call. Must be called with the engine
  /// locked; the caller publishes them after the unlock.
  Ended take_ended() { return std::exchange(ended_, {}); }
  /// Publishes all of them, then rethrows the first exception of a callback.
  static void publish(const Ended& ended);

 private:
  Ended ended_;
};

}  // namespace gradwire::engine
