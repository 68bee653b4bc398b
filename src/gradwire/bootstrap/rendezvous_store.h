#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "gradwire/bootstrap/rank_zero.h"
#include "gradwire/bootstrap/start_watch.h"
#include "gradwire/bootstrap/store.h"
#include "gradwire/bootstrap/store_protocol.h"
#include "gradwire/net/address.h"
#include "gradwire/net/deadline.h"
#include "gradwire/net/socket.h"

namespace gradwire::bootstrap {

/// A rank's client of the rendezvous store on rank 0 (bootstrap/rendezvous_server.h). Thread-safe;
/// requests of several threads are serialized, and a waiting get alternates with the others.
class RendezvousStore final : public Store, public StartWatch {
 public:
  struct Member {
    std::string host;  ///< Name or address of rank 0's host.
    std::uint16_t port = 0;
    std::string secret;
    int rank = 0;
    int world_size = 1;
    std::string job_id = {};    ///< Job::job_id.
    std::string own_host = {};  ///< Name of this host, for messages.
  };

  /// Connects, performs the handshake and joins. Retries until the deadline while rank 0 may not
  /// have started yet or is out of file descriptors. Fails with timeout, refused, mismatch (of job
  /// or world size), invalid_argument (duplicate rank), corrupted (another program listens there),
  /// or the reason for which the start has failed.
  static Result<std::unique_ptr<RendezvousStore>> connect(const net::HostNetwork& network,
                                                          const Member& member,
                                                          net::Deadline deadline);

  /// Keys up to kMaxKeyBytes, values up to kMaxValueBytes; fails with invalid_argument beyond that.
  Status set(const std::string& key, const std::string& value) override;
  Result<std::string> get(const std::string& key, Duration timeout) override;

  /// Tells the server that this rank is done. Must be the last request.
  Status finish();

  Result<bool> seal() override;
  bool is_authenticated() const override { return true; }
  const net::Socket& socket() const override { return socket_; }
  Status check() override;
  Error fail(const Error& error) override;
  Status complete(net::Deadline deadline, const ConnectionCheck& check_connections = {}) override;

  /// Address of the server.
  const net::SocketAddress& server() const { return server_; }

 private:
  struct Reply;
  struct Request;

  RendezvousStore(const Clock& clock, RankZeroConnection connected, Member member);
  Status join();
  Result<Reply> ask(const Request& request);
  Result<Reply> receive_reply(net::Deadline deadline);
  Status send_all(std::string_view bytes, net::Deadline deadline);
  Result<std::string> receive(std::size_t size, net::Deadline deadline);
  Result<std::string> receive_with_code(std::size_t size, net::Deadline deadline);
  tl::unexpected<Error> lost_error(std::string_view how) const;
  tl::unexpected<Error> lost(std::string_view how);

  const Clock& clock_;
  std::mutex mutex_;
  net::Socket socket_;
  net::SocketAddress server_;
  Member member_;
  StoreCodes ours_;
  StoreCodes theirs_;
  std::optional<Error> failed_;  ///< The reason for which the start has failed, once received.
};

}  // namespace gradwire::bootstrap
