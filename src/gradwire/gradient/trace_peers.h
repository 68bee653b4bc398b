#pragma once

#include <memory>

#include "gradwire/base/bytes.h"
#include "gradwire/base/types.h"
#include "gradwire/comm/communicator.h"

namespace gradwire {

/// The little that traces need of a group of ranks, whatever it communicates by. Calls block, and
/// throw Exception if the group has failed.
class TracePeers {
 public:
  virtual ~TracePeers() = default;

  virtual Rank rank() const = 0;
  virtual int size() const = 0;

  /// A message of as many bytes as the other side asks for.
  virtual void send(ConstBytes bytes, Rank to) = 0;
  virtual void recv(Bytes bytes, Rank from) = 0;
};

/// Over a communicator.
std::unique_ptr<TracePeers> trace_peers(std::shared_ptr<Communicator> communicator);

}  // namespace gradwire
