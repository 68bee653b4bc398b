#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "gradwire/base/types.h"

namespace gradwire {

class Communicator;

/// The operations that traces need of a group of ranks, independent of its communication library.
/// Calls block, and throw Exception if the group has failed.
class TracePeers {
 public:
  virtual ~TracePeers() = default;

  virtual Rank rank() const = 0;
  virtual int size() const = 0;

  /// The receiver must expect the same number of bytes.
  virtual void send(std::span<const std::byte> bytes, Rank to) = 0;
  virtual void recv(std::span<std::byte> bytes, Rank from) = 0;
};

/// Over a communicator.
std::unique_ptr<TracePeers> trace_peers(std::shared_ptr<Communicator> communicator);

}  // namespace gradwire
