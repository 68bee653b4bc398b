#pragma once

#include <optional>
#include <string>
#include <vector>

#include "gradwire/bootstrap/job.h"
#include "gradwire/bootstrap/start.h"
#include "gradwire/bootstrap/store/store_session.h"

namespace gradwire::bootstrap {

/// Start over a session with our own store server, which coordinates it
/// (bootstrap/store/start_state.h): one request for each step.
class ServedStart final : public Start {
 public:
  /// `timeout`: of the whole start, for error messages. `network` and `job` must outlive the start.
  ServedStart(const net::HostNetwork& network, StoreSession session, const Job& job,
              Duration timeout);

  Result<std::vector<RankEndpoint>> exchange_endpoints(const RankEndpoint& own,
                                                       net::Deadline deadline) override;
  bool is_authenticated() const override { return true; }
  const net::Socket& socket() const override { return session_.socket(); }
  Status check() override;
  Error fail(const Error& error) override;
  /// The server notices when a rank exits, so `check_connections` is not needed.
  Status await_all(net::Deadline deadline, const ConnectionCheck& check_connections = {}) override;

 private:
  Result<StoreResponse> ask(const StoreRequest& request);
  Result<StoreResponse> checked(Result<StoreResponse> response);
  std::string where() const;

  const net::HostNetwork& network_;
  StoreSession session_;
  const Job& job_;
  Duration timeout_;
  std::optional<Error> failed_;  ///< The reason for which the start has failed, once received.
};

}  // namespace gradwire::bootstrap
