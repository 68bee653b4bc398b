#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "gradwire/schedule/cost/segments.h"
#include "gradwire/schedule/layout.h"
#include "gradwire/schedule/program_set.h"
#include "gradwire/schedule/schedule.h"
#include "gradwire/topology/topology.h"

/// Cost of a schedule, computed from the schedule alone: a new algorithm needs no cost formula.
namespace gradwire::schedule {

/// Shares of a port's rate that concurrent senders to one rank lose (incast); 0: none.
struct IncastCosts {
  double direct = 0;        ///< Per stream beyond two, where no rank forwards data.
  double forwarding = 0;    ///< Per stream beyond two, where ranks forward data, as in trees.
  double inside = 0;        ///< Between ranks of one host, whatever their number,
  double inside_bytes = 0;  ///< if a message has at least these bytes.
};

/// Assumptions about the machines that the topology does not hold. The default has links only;
/// executor_costs() returns the measured values.
struct CostOptions {
  /// Segment size in bytes. Messages are cut into segments, which are forwarded one by one.
  std::size_t segment_bytes = kMaxSegmentBytes;
  /// If not 0, messages have segments of the size that the executor cuts the longest of them into:
  /// segment_of() (segments.h), at most segment_bytes.
  int segments_per_message = 0;
  /// Maximum number of segments modeled per message; very many messages reduce it. Segments of
  /// longer messages become larger. Bounds the time of an estimate.
  std::uint32_t max_segments = 256;
  /// Maximum number of segments over all messages; beyond it, each message is cut into fewer.
  std::size_t max_tasks = std::size_t{1} << 15;
  /// CPU time per segment sent, and again per segment received. One thread per rank does all of it.
  Duration per_segment = Duration::zero();
  /// The same for messages between ranks of one host.
  Duration per_segment_inside = Duration::zero();
  /// Rate at which that thread reduces and copies; 0: takes no time.
  double reduce_bytes_per_second = 0;
  IncastCosts incast;
};

/// Returns what the executor over TCP was measured to cost (constants.h). `segments`: per message;
/// 0: the default.
CostOptions executor_costs(std::size_t max_segment_bytes = kMaxSegmentBytes, int segments = 0);

struct Counts {
  /// Hops on the longest chain of dependent messages.
  std::uint32_t steps = 0;
  /// By rank.
  std::vector<std::size_t> messages_sent;
  std::vector<std::size_t> bytes_sent;
};

/// A time interval, relative to the start of the operation.
struct Interval {
  Duration begin = Duration::zero();
  Duration end = Duration::zero();
};

struct Estimate {
  Duration total = Duration::zero();
  Duration busiest_port = Duration::zero();  ///< Time of a host's port, in one direction.
  /// By rank and op. A send lasts while its bytes leave the rank, a receive while they arrive.
  std::vector<std::vector<Interval>> ops;
  /// Critical path, first op to last. Each op waited for the one before it: for its result, or for
  /// the port or processor that it occupied.
  std::vector<OpRef> critical_path;
};

class MessageGraph;

/// Costs of one schedule, for any data size and links. The constructor builds all ranks' programs.
/// Immutable, thread-safe.
class ScheduleCost {
 public:
  /// `schedule` must pass verify() (verifier.h).
  explicit ScheduleCost(const Schedule& schedule);
  ~ScheduleCost();

  Counts count(const ChunkLayout& layout) const;

  /// Estimates the times on `topology`, whose ranks() must equal the schedule's. All ranks start at
  /// the same time. Each host's port sends one segment at a time and receives one at a time, first
  /// come, first served, for all its ranks. A segment of b bytes arrives latency + b /
  /// bytes_per_second after it starts to leave. It arrives later if either port is busy, or if the
  /// measured link between the two hosts (Topology::measured) is slower. Messages within a host do
  /// not use its port. Concurrent senders to one rank lose some of the rate (CostOptions::incast).
  /// Hosts that share a machine's processors take no less than these need. Takes some milliseconds
  /// for 64 ranks that all exchange messages with each other.
  Estimate estimate(const topology::Topology& topology, const ChunkLayout& layout,
                    const CostOptions& options = {}) const;

  /// Estimates `bytes` bytes of all chunks together.
  Estimate estimate(const topology::Topology& topology, std::size_t bytes,
                    const CostOptions& options) const {
    return estimate(topology, ChunkLayout(programs_.schedule().chunks, bytes, 1), options);
  }

  const ProgramSet& programs() const { return programs_; }

 private:
  ProgramSet programs_;
  std::unique_ptr<MessageGraph> graph_;
};

}  // namespace gradwire::schedule
