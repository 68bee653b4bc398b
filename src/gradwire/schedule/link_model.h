#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <queue>
#include <utility>
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
  /// What sends and receives: a host's port, or what joins a rank to the others of its host.
  struct Port {
    double bytes_per_second = 0;
    Server egress;
    Server ingress;
  };
  struct Machine {
    Server processor;
    double slowdown = 1;  ///< Where ranks share too few processors.
    Port inside;
  };
  /// A path between two hosts that was measured: it may carry less than their ports.
  struct Wire {
    double bytes_per_second = 0;
    Server server;
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
    std::uint32_t issued = 0;  ///< Segments that have begun.
    std::uint32_t done = 0;    ///< Segments that have ended.
    bool released = true;      ///< Whether the next segment may begin, as far as this op goes.
    double bytes = 0;          ///< Of one segment.
    double real_segments = 1;  ///< That one of these stands for.
    Nanoseconds begin = -1;
    Nanoseconds end = 0;
  };

  void set_up_machines();
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
  Rank rank_of(NodeId node) const { return programs_.ref(node).rank; }
  Machine& machine(NodeId node) { return machines_[static_cast<std::size_t>(rank_of(node))]; }
  bool stays_inside(NodeId node) const;
  Port& port(NodeId node);
  Nanoseconds cross_wire(NodeId node, Task task, Nanoseconds from);
  Nanoseconds handling_time(NodeId node);
  Nanoseconds compute_time(NodeId node);
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
  std::vector<NodeId> behind_;     ///< By op: those that wait for it.
  std::vector<Machine> machines_;  ///< By rank.
  std::vector<Port> ports_;        ///< By host.
  std::map<std::pair<int, int>, Wire> wires_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::uint64_t sequence_ = 0;
  Task last_done_ = kNoTask;
};

}  // namespace gradwire
