#pragma once

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "gradwire/net/socket.h"

namespace gradwire::bootstrap {

/// Source of incoming connections before their handshake.
class Listener {
 public:
  virtual ~Listener() = default;

  /// Readable (POLLIN) when accept() has work to do. May change after accept().
  virtual const net::Socket& socket() const = 0;

  /// Returns the next connection, or nullopt if there is none. Fails with system or an error of
  /// opening it. If socket() is not valid after a failure, the listener is closed for good.
  virtual Result<std::optional<net::Accepted>> accept() = 0;
};

/// A listening socket.
class SocketListener final : public Listener {
 public:
  explicit SocketListener(net::Socket socket) : socket_(std::move(socket)) {}

  const net::Socket& socket() const override { return socket_; }
  Result<std::optional<net::Accepted>> accept() override { return net::accept_one(socket_); }

 private:
  net::Socket socket_;
};

using Listeners = std::vector<std::unique_ptr<Listener>>;

/// Wraps one listening socket.
inline Listeners listeners_of(net::Socket socket) {
  Listeners listeners;
  listeners.push_back(std::make_unique<SocketListener>(std::move(socket)));
  return listeners;
}

}  // namespace gradwire::bootstrap
