#pragma once

#include "gradwire/base/error.h"
#include "gradwire/bootstrap/job.h"
#include "gradwire/bootstrap/store/store_session.h"
#include "gradwire/net/deadline.h"
#include "gradwire/net/host_network.h"

namespace gradwire::bootstrap {

/// The claims of the job's rank to rank 0.
Claims claims_of(const Job& job);

/// Connects to the job's store server at its master address and port. Retries until the deadline:
/// rank 0 may not have started yet, or be out of file descriptors. Blocks. Fails with timeout,
/// refused, mismatch, invalid_argument or corrupted (another program listens there).
Result<StoreSession> open_session(const net::HostNetwork& network, const Job& job,
                                  const Claims& claims, net::Deadline deadline);

/// Attempts to connect, until the deadline: there is no event for "rank 0 has started". Pauses grow
/// from 5 to 200 ms. After 8 s it logs one warning, which names rank 0's address and the last
/// error.
class Attempts {
 public:
  Attempts(const net::HostNetwork& network, const Job& job, net::Deadline deadline)
      : network_(network), job_(job), deadline_(deadline), start_(deadline.clock().now()) {}

  /// Pauses after a failed attempt, at most until the deadline. Fails with `error` if it cannot
  /// pass: rank 0 may not have started yet, or this process may be out of file descriptors. A name
  /// that does not exist may appear within 10 s: in some clusters it does when the host is up. A
  /// refusal may be another job's, which ends within 2 s or keeps this job's rank 0 from listening:
  /// then rank 0 says so first.
  Status after(const Error& error);

  /// Returns the seconds from the first attempt to the deadline.
  double seconds() const;

 private:
  bool may_pass(const Error& error) const;
  Duration waited() const { return deadline_.clock().now() - start_; }

  const net::HostNetwork& network_;
  const Job& job_;
  net::Deadline deadline_;
  Time start_;
  Duration pause_ = std::chrono::milliseconds(5);
  bool warned_ = false;
};

}  // namespace gradwire::bootstrap
