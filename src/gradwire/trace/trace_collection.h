#pragma once

#include <functional>
#include <memory>

#include "gradwire/base/bytes.h"
#include "gradwire/base/clock.h"
#include "gradwire/base/types.h"
#include "gradwire/comm/communicator.h"
#include "gradwire/trace/trace_clock.h"
#include "gradwire/trace/trace_rank.h"

namespace gradwire {

/// The operations that traces need of a group of ranks, independent of its communication library.
/// Calls block, and throw Exception if the group has failed.
class TracePeers {
 public:
  virtual ~TracePeers() = default;

  virtual Rank rank() const = 0;
  virtual int size() const = 0;

  /// The receiver must expect the same number of bytes.
  virtual void send(ConstBytes bytes, Rank to) = 0;
  virtual void recv(Bytes bytes, Rank from) = 0;
};

/// Over a communicator.
std::unique_ptr<TracePeers> trace_peers(std::shared_ptr<Communicator> communicator);

/// Compares this rank's clock with rank 0's, which answers one rank at a time. No other
/// communication should be in flight. Collective. Throws Exception.
ClockReading read_clock(TracePeers& peers, const Clock& clock);

/// On rank 0, passes the trace of every rank to `take`, in rank order, one in memory at a time; the
/// other ranks send theirs. Collective. Throws Exception: corrupted if a received trace cannot be
/// parsed.
void gather_traces(TracePeers& peers, const RankTrace& own,
                   const std::function<void(RankTrace)>& take);

}  // namespace gradwire
