#pragma once

#include <functional>
#include <string>
#include <vector>

#include "gradwire/base/error.h"
#include "gradwire/base/types.h"
#include "gradwire/bootstrap/mesh/rank_endpoint.h"
#include "gradwire/net/deadline.h"
#include "gradwire/net/socket.h"

namespace gradwire::bootstrap {

/// A rank's part in the start of its job, over a store: the ranks exchange their endpoints, connect
/// to each other, and wait until all are connected. After the exchange the start succeeds on every
/// rank or fails on every rank, and all get the same reason: that of the first failure. One object
/// per rank; not thread-safe.
class Start {
 public:
  /// Interval of check() calls if there is no socket that reports news.
  static constexpr Duration kCheckInterval = std::chrono::milliseconds(500);

  /// Time for which a rank whose deadline has passed waits for rank 0's error.
  static constexpr Duration kRankZeroGrace = std::chrono::seconds(1);

  virtual ~Start() = default;

  /// Gives the other ranks this rank's endpoint and returns those of all ranks, once all have
  /// joined. Fails with timeout (names all missing ranks), disconnected, corrupted,
  /// invalid_argument (two processes have this rank), mismatch (of world sizes or jobs), or the
  /// reason for which the start has failed.
  virtual Result<std::vector<RankEndpoint>> exchange_endpoints(const RankEndpoint& own,
                                                               net::Deadline deadline) = 0;

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
  virtual Status await_all(net::Deadline deadline, const ConnectionCheck& check_connections) = 0;
};

/// Decodes the endpoints of all ranks, as encode(RankEndpoint) made them. Fails with corrupted.
Result<std::vector<RankEndpoint>> decode_all(const std::vector<std::string>& endpoints);

/// The error of a start to which `ranks` have not come; none: this rank's timeout was too short.
/// `ended`: names of processes of those ranks that had come and ended. `where`: of the master.
Error missing_error(const std::vector<Rank>& ranks, const std::vector<std::string>& ended,
                    const std::string& where, Duration timeout);

}  // namespace gradwire::bootstrap
