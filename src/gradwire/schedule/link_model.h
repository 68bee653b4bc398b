#pragma once

#include <cstddef>
#include <cstdint>
#include <queue>
#include <vector>

#include "gradwire/schedule/cost.h"
#include "gradwire/schedule/proof/wait_graph.h"

namespace gradwire {

/// Bytes that an op moves: all scratch slots mirror a chunk, so this is a chunk's size, or
/// several's.
std::size_t length(const Op& op, const Program& program, const ChunkLayout& layout);

/// Plays a schedule through on a topology, segment by segment, as a queue of events in time. It
/// moves no data: the executor over simulated links (comm) does, at a thousand times the cost.
class LinkModel {
 public:
  LinkModel(const ProgramSet& programs, const std::vector<NodeId>& partner,
            const proof::WaitGraph& graph, const Topology& topology, const ChunkLayout& layout,
            const CostOptions& options);

  /// Call once.
  Estimate run();

 private:
  /// A segment of an op, numbered through: those of op 0, then op 1, ...
  using Task = std::uint32_t;
  static constexpr Task kNoTask = static_cast<Task>(-1);
  using Nanoseconds = double;

  /// What serves one segment at a time.
  struct Server {
    Nanoseconds free = 0;
    Task last = kNoTask;
  };
  struct Machine {
    Server processor;
    Server egress;
    Server ingress;
  };
  struct Event {
    enum Kind : std::uint8_t { arriving, arrived, done } kind;
    Nanoseconds at;
    std::uint64_t sequence;  ///< Of two events at the same time, the one thought of first.
    Task task;
    Nanoseconds not_before;  ///< arriving: the last byte cannot be there earlier.

    bool operator>(const Event& other) const {
      return at != other.at ? at > other.at : sequence > other.sequence;
    }
  };
  struct OpState {
    Task first = 0;  ///< Its first segment.
    std::uint32_t segments = 1;
    std::uint32_t issued = 0;     ///< Segments that have begun.
    std::uint32_t done = 0;       ///< Segments that have ended.
    bool released = true;         ///< Whether the next segment may begin, as far as this op goes.
    double bytes = 0;             ///< Of one segment.
    Nanoseconds per_segment = 0;  ///< Processor time of one segment, as sender or receiver.
    Nanoseconds begin = -1;
    Nanoseconds end = 0;
  };

  void cut_into_segments(const ChunkLayout& layout);
  void connect();

  bool may_begin(NodeId node) const;
  void try_issue(NodeId node, Nanoseconds now, Task cause);
  void issue_send(Task task, NodeId node, Nanoseconds now);
  void issue_local(Task task, NodeId node, Nanoseconds now);
  void receive(const Event& event);
  void process_received(const Event& event);
  void finish(const Event& event);

  Nanoseconds occupy(Server& server, Task task, Nanoseconds now, Nanoseconds duration);
  void post(Event::Kind kind, Nanoseconds at, Task task, Nanoseconds not_before = 0);
  Machine& machine(NodeId node);
  Nanoseconds wire_time(Rank rank, double bytes) const;
  Nanoseconds compute_time(NodeId node) const;
  Estimate result() const;
  std::vector<OpRef> trace_back() const;

  const ProgramSet& programs_;
  const std::vector<NodeId>& partner_;
  const proof::WaitGraph& graph_;
  const Topology& topology_;
  const CostOptions& options_;

  std::vector<OpState> ops_;
  std::vector<NodeId> node_of_;  ///< By task.
  std::vector<Task> cause_;      ///< By task: what it waited for last.
  std::vector<std::uint32_t> behind_first_;
  std::vector<NodeId> behind_;  ///< By op: those that wait for it.
  std::vector<Machine> machines_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::uint64_t sequence_ = 0;
  Task last_done_ = kNoTask;
};

}  // namespace gradwire
