#pragma once

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "gradwire/net/socket.h"

namespace gradwire {

/// Where connections come in that nobody has shaken hands with yet.
class Door {
 public:
  virtual ~Door() = default;

  /// Readable (POLLIN) when accept() has something to do. May be another one after accept().
  virtual const Socket& socket() const = 0;

  /// The next connection, or nothing if there is none now. Errors: system, and those of opening the
  /// door; if socket() is not valid after one, the door is closed for good.
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

/// One listening socket as doors.
inline Doors doors_of(Socket listener) {
  Doors doors;
  doors.push_back(std::make_unique<ListeningDoor>(std::move(listener)));
  return doors;
}

}  // namespace gradwire
