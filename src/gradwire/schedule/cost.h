#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "gradwire/schedule/layout.h"
#include "gradwire/schedule/program_set.h"
#include "gradwire/schedule/schedule.h"
#include "gradwire/topology/topology.h"

/// What a schedule costs, computed from the schedule alone: a new algorithm needs no formula.
namespace gradwire {

/// How the machines are thought to behave, besides what the topology says.
struct CostOptions {
  /// Messages are cut into segments of this many bytes, which flow on one by one.
  std::size_t segment_bytes = 128 * 1024;
  /// At most so many segments a message are told apart (fewer if there are very many messages);
  /// those of a longer message are then larger. Bounds the time an estimate takes.
  std::uint32_t max_segments = 256;
  /// Segments of all messages together, above which each is cut into fewer.
  std::size_t max_tasks = std::size_t{1} << 15;
  /// CPU time for each segment sent, and again for each received. One thread a rank does all.
  Duration per_segment = Duration::zero();
  /// The same for messages between ranks of one host.
  Duration per_segment_inside = Duration::zero();
  /// How fast that thread reduces and copies; 0: takes no time.
  double reduce_bytes_per_second = 0;
};

struct Counts {
  /// Messages of which each needs the one before: hops of the longest chain.
  std::uint32_t steps = 0;
  /// By rank.
  std::vector<std::size_t> messages_sent;
  std::vector<std::size_t> bytes_sent;
};

/// When something happens, from the start of the operation.
struct Interval {
  Duration begin = Duration::zero();
  Duration end = Duration::zero();
};

struct Estimate {
  Duration total = Duration::zero();
  /// By rank and op. A send lasts while it leaves its rank, a receive while it comes in.
  std::vector<std::vector<Interval>> ops;
  /// The ops that make it last as long as it does, first to last. Each waited for the one before
  /// it: for its result, or for the port or processor that it kept busy.
  std::vector<OpRef> critical_path;
};

class MessageGraph;

/// The costs of one schedule, for any sizes and links. Building it makes all ranks' programs.
/// Immutable, thread-safe.
class ScheduleCost {
 public:
  /// `schedule` must be right (verifier.h).
  explicit ScheduleCost(const Schedule& schedule);
  ~ScheduleCost();

  Counts count(const ChunkLayout& layout) const;

  /// All ranks start at the same time; topology.ranks() is the schedule's. Each host's port sends
  /// one segment at a time and receives one at a time, first come first served, whichever of its
  /// ranks they are for. A segment of b bytes is there latency + b / bytes_per_second after it
  /// starts to leave, or later if either port is busy, or what was measured between the two hosts
  /// (Topology::measured) is slower. What stays inside a host does not use its port. 64 ranks that
  /// all talk to all take some milliseconds.
  Estimate estimate(const Topology& topology, const ChunkLayout& layout,
                    const CostOptions& options = {}) const;

  const ProgramSet& programs() const { return programs_; }

 private:
  ProgramSet programs_;
  std::unique_ptr<MessageGraph> graph_;
  std::uint32_t steps_ = 0;
};

}  // namespace gradwire
