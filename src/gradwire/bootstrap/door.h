#pragma once

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "gradwire/net/socket.h"

namespace gradwire {

/// Source of incoming connections before their handshake.
class Door {
 public:
  virtual ~Door() = default;

  /// Readable (POLLIN) when accept() has work to do. May change after accept().
  virtual const Socket& socket() const = 0;

  /// Returns the next connection, or nullopt if there is none. Fails with system or an error of
  /// opening the door. If socket() is not valid after a failure, the door is closed for good.
  virtual Result<std::optional<Accepted>> accept() = 0;
};

/// A listening socket.
class ListeningDoor final : public Door {
 public:
  explicit ListeningDoor(Socket listener) : listener_(std::move(listener)) {}

  const Socket& socket() const override { return listener_; }
  Result<std::optional<Accepted>> accept() override { return accept_one(listener_); }

 private:
  Socket listener_;
};

using Doors = std::vector<std::unique_ptr<Door>>;

/// Wraps one listening socket.
inline Doors doors_of(Socket listener) {
  Doors doors;
  doors.push_back(std::make_unique<ListeningDoor>(std::move(listener)));
  return doors;
}

}  // namespace gradwire
