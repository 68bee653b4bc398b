#pragma once

#include <functional>

#include "gradwire/base/error.h"
#include "gradwire/net/deadline.h"
#include "gradwire/net/socket.h"

namespace gradwire::bootstrap {

/// Makes the start of a job succeed on every rank or fail on every rank, between the moment when
/// all ranks have joined and that when all are connected. All ranks get the same reason: that of
/// the first failure. One object per rank; not thread-safe.
class StartWatch {
 public:
  /// Interval of check() calls if there is no socket that reports news.
  static constexpr Duration kCheckInterval = std::chrono::milliseconds(500);

  virtual ~StartWatch() = default;

  /// Rank 0 has found all ranks: none may leave after this. Returns false if one has left in the
  /// meantime. Fails with disconnected, or with the reason for which the start has failed.
  virtual Result<bool> seal() = 0;

  /// Returns true if all ranks have proved to rank 0 that they know the job's secret.
  virtual bool is_authenticated() const = 0;

  /// Readable when check() may find a failure. If not valid, call check() every kCheckInterval.
  virtual const net::Socket& socket() const = 0;

  /// Checks for a failure without waiting. Fails with the reason for which the start has failed.
  virtual Status check() = 0;

  /// Reports to the other ranks that this rank failed. Returns the reason for which the start has
  /// failed: `error`, unless another rank failed earlier.
  virtual Error fail(const Error& error) = 0;

  /// Checks the connections of this rank without waiting. Fails with disconnected, naming a rank
  /// that has hung up.
  using ConnectionCheck = std::function<Status()>;

  /// Called when this rank is connected to all others; waits until every rank is. Calls
  /// `check_connections` if the store itself does not report that a rank has died. Fails with
  /// timeout (names the ranks that are not connected), disconnected, or the reason for which the
  /// start has failed.
  virtual Status complete(net::Deadline deadline, const ConnectionCheck& check_connections) = 0;
};

}  // namespace gradwire::bootstrap
