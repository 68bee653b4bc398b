#pragma once

#include <cstdint>
#include <future>
#include <list>
#include <memory>
#include <optional>
#include <utility>

#include "gradwire/bootstrap/handshake/handshake_server.h"
#include "gradwire/federated/remote/coordinator.h"
#include "gradwire/federated/remote/enrolment.h"
#include "gradwire/net/host_network.h"

namespace gradwire::federated {

/// Federated learning with clients over the network. A client connects with its identity, asks
/// (federated/remote/messages.h), is answered by the Coordinator, and leaves: it has no connection
/// while it trains. An answer that depends on others is awaited, for at most `poll`. Whatever
/// clients send, the server keeps at most a small message for each of `max_connections`, and
/// `max_update_bytes` of updates. For one thread.
class FederatedServer {
 public:
  struct Options {
    Coordinator::Options rounds;
    std::int64_t count = 0;  ///< Rounds, from the first one; 0: as the model says.
    Duration poll = std::chrono::seconds(20);
    /// A connection on which less than 16 KiB moved in this time, but should, is closed.
    Duration patience = std::chrono::seconds(20);
    std::size_t max_connections = 1024;
    /// Size of all updates that arrive at the same time; one is received whatever its size.
    std::size_t max_update_bytes = std::size_t{1} << 30;
    /// Called after the last round if the server still waits for clients that have not heard of the
    /// end: their number, and the longest time that it waits.
    std::function<void(std::int64_t clients, Duration longest)> on_waiting;
  };

  /// Serves through `listener`. `network`, `enrolment` and `model` must outlive this. Throws as
  /// Coordinator.
  FederatedServer(const net::HostNetwork& network, net::Socket listener, Enrolment& enrolment,
                  ServerModel& model, Options options);
  ~FederatedServer();

  /// Returns after the last round, once the expected clients know of it or
  /// Coordinator::Options::expected_within has passed, or when `stop` becomes readable; before that
  /// it calls ServerModel::on_stop(). Fails with system. Throws what
  /// the model throws.
  Status run(const net::Socket& stop);

  const ClientLedger& ledger() const { return coordinator_.ledger(); }

 private:
  struct Connection;
  /// ServerModel::on_ended() on a thread of its own.
  struct Ending {
    net::Socket ours, theirs;
    std::future<void> done;
  };

  void enter(bootstrap::AuthenticatedConnection made);
  void make_room(ClientId id);
  net::Deadline watch(net::PollSet& set);
  void serve_all(const net::PollSet& set);
  void serve(Connection& connection);
  Status advance(Connection& connection);
  bool decide(Connection& connection);
  Status take_question(Connection& connection);
  void try_answer(Connection& connection);
  void answer_those_waiting();
  void answer(Connection& connection, const Answer& answer);
  void close(Connection& connection);
  bool is_too_slow(Connection& connection);
  bool is_anyone_awaited() const;
  Status advance_rounds();
  Status start_ending();
  void finish_ending();
  Time now() const { return network_.clock().now(); }

  const net::HostNetwork& network_;
  Enrolment& enrolment_;
  ServerModel& model_;
  Options options_;
  Coordinator coordinator_;
  bootstrap::HandshakeServer handshakes_;
  std::list<std::unique_ptr<Connection>> connections_;  ///< Oldest first.
  std::size_t update_bytes_ = 0;                        ///< Announced, in updates that arrive.
  std::int64_t rounds_left_;
  std::optional<Ending> ending_;
  bool is_over_ = false;
};

}  // namespace gradwire::federated
