#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "gradwire/comm/store.h"
#include "gradwire/net/address.h"
#include "gradwire/net/deadline.h"
#include "gradwire/net/socket.h"

namespace gradwire {

/// A rank's connection to the rendezvous store of rank 0 (comm/rendezvous_server.h). Thread-safe;
/// requests of several threads go one after the other, a waiting get in turns with the others.
class RendezvousStore final : public Store {
 public:
  struct Member {
    std::string host;  ///< Name or address of rank 0's host.
    std::uint16_t port = 0;
    std::string secret;
    int rank = 0;
    int world_size = 1;
  };

  /// Connects and shakes hands, trying again until the deadline while rank 0 may not have started
  /// yet. Errors: timeout, refused, mismatch, invalid_argument, corrupted (something else listens
  /// there).
  static Result<std::unique_ptr<RendezvousStore>> connect(const Member& member, Deadline deadline);

  /// Keys up to kMaxKeyBytes, values up to kMaxValueBytes. Errors: also invalid_argument.
  Status set(const std::string& key, const std::string& value) override;
  Result<std::string> get(const std::string& key, Duration timeout) override;

  /// Tells the server that this rank has what it needs. The last request.
  Status finish();

  /// Where the server was reached.
  const SocketAddress& server() const { return server_; }

 private:
  struct Reply;

  RendezvousStore(Socket socket, SocketAddress server);
  Result<Reply> ask(const std::string& request, Duration wait);
  Status send_all(std::string_view bytes, Deadline deadline);
  Result<std::string> receive(std::size_t size, Deadline deadline);
  tl::unexpected<Error> lost(std::string_view how);

  std::mutex mutex_;
  Socket socket_;
  SocketAddress server_;
};

}  // namespace gradwire
