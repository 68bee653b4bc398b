#pragma once

#include <functional>

#include "gradwire/base/error.h"
#include "gradwire/net/deadline.h"
#include "gradwire/net/socket.h"

namespace gradwire {

/// From when all ranks have joined until all are connected, the start of a job succeeds on every
/// rank or fails on every rank, with one reason: that of the rank which failed first. One object a
/// rank; one thread.
class StartWatch {
 public:
  /// How often to look() where no socket says when to.
  static constexpr Duration kLookEvery = std::chrono::milliseconds(500);

  virtual ~StartWatch() = default;

  /// Rank 0 has found all ranks: none may leave any more. False if one has left meanwhile. Errors:
  /// disconnected, and the reason for which the start has failed.
  virtual Result<bool> seal() = 0;

  /// Whether all ranks have proved to rank 0 that they know the job's secret.
  virtual bool is_authenticated() const = 0;

  /// Readable when look() may find something; not valid: look every kLookEvery.
  virtual const Socket& socket() const = 0;

  /// Does not wait. Error: the reason for which the start has failed.
  virtual Status look() = 0;

  /// This rank cannot go on, which the others learn. Returns the reason for which the start has
  /// failed: `error`, unless another rank failed before.
  virtual Error fail(const Error& error) = 0;

  /// Says whether the connections of this rank still stand. Error: disconnected, naming a rank that
  /// has hung up. Does not wait.
  using Standing = std::function<Status()>;

  /// This rank is connected with all others; waits until every rank is. Asks `standing` where the
  /// store itself does not tell that a rank has died. Errors: timeout (names the ranks that are
  /// not), disconnected, and the reason for which the start has failed.
  virtual Status complete(Deadline deadline, const Standing& standing) = 0;
};

}  // namespace gradwire
