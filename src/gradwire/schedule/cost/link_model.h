#pragma once

#include <cstdint>
#include <queue>
#include <vector>

#include "gradwire/schedule/cost/cost.h"
#include "gradwire/schedule/cost/message_graph.h"

namespace gradwire::schedule {

/// Resources that an op of a message graph uses, as indices into LinkMap's vectors.
struct OpLoad {
  static constexpr std::uint32_t kNone = static_cast<std::uint32_t>(-1);

  double bytes = 0;     ///< Bytes that it moves.
  double segments = 1;  ///< Number of segments that they are cut into.
  double handling = 0;  ///< CPU time per segment at this end, in nanoseconds.
  double latency = 0;   ///< Sends: one way, in nanoseconds.
  /// Receives: factor of their time in the port, and inside a host of `handling` too.
  double incast = 1;
  /// Sends to another group: messages like it that cross the uplink at the same time, where one
  /// host represents all.
  double alike = 1;
  std::uint32_t port = 0;                  ///< Messages: the port at this end.
  std::uint32_t wire = kNone;              ///< Sends: the path between the two hosts.
  std::uint32_t up = kNone, down = kNone;  ///< Sends to another group of hosts.
};

/// Resources that the ops of a message graph share. Rates in bytes per second.
struct LinkMap {
  std::vector<double> ports;     ///< Each direction of hosts' ports, then of ranks' ports to the
                                 ///< other ranks of their host.
  std::size_t hosts = 0;         ///< Number of hosts' ports.
  std::vector<double> wires;     ///< Paths between two hosts that may be slower than their ports.
  std::vector<double> uplinks;   ///< From groups of hosts (racks) to the others, each direction.
  std::vector<double> slowdown;  ///< By rank: above 1 where ranks outnumber their cores.
  /// By rank: index into `cores`, the number of processors of each machine, which hosts that are
  /// network namespaces share; OpLoad::kNone: not known. May be empty.
  std::vector<std::uint32_t> machines;
  std::vector<double> cores;
  std::vector<OpLoad> ops;  ///< By op.
};

/// Discrete-event simulation of a message graph on links, segment by segment. It moves no data,
/// unlike the executor over simulated links (comm), which costs a thousand times as much. It is the
/// only such model: schedule costs, hence the tuner, and the planner use it.
///
/// A segment occupies its sender's processor, the sender's port, the path or the racks' uplinks if
/// there are any, the receiver's port, and the receiver's processor. Each serves segments first
/// come, first served. Bytes are forwarded as they arrive (cut-through): a stage begins when the
/// stage before it begins, and ends no sooner. Concurrent senders to one rank lose some of its
/// port's rate (incast.h), and the operation takes no less than the processor time of all ranks of
/// a machine, divided among its processors.
class LinkModel {
 public:
  using Number = MessageGraph::Number;
  using Nanoseconds = double;

  /// The arguments must outlive the model. `options` gives the number of modeled segments and the
  /// reduction rate; all else is in `links`.
  LinkModel(const MessageGraph& graph, const LinkMap& links, const CostOptions& options);

  /// Runs the simulation; returns the time at which all ops are complete. Call once.
  Nanoseconds run();

  /// Valid after run(): busy time of the most loaded port of a host or uplink of a group, in one
  /// direction. Another operation can use the rest.
  Nanoseconds busiest_port() const;
  /// Valid after run(): the start of an op's first segment, and the end of its last one.
  Nanoseconds begin(Number op) const { return states_[op].begin; }
  Nanoseconds end(Number op) const { return states_[op].end; }
  /// Ops on the critical path, first to last.
  std::vector<Number> critical_path() const;

 private:
  /// A segment of an op. Tasks are numbered over all ops: those of op 0, then those of op 1, ...
  using Task = std::uint32_t;
  static constexpr Task kNoTask = static_cast<Task>(-1);

  /// A resource that serves one segment at a time.
  struct Server {
    Nanoseconds free = 0, busy = 0;
    Task last = kNoTask;
  };
  struct Port {
    Server out, in;
  };
  struct Event {
    enum Kind : std::uint8_t { done, leaving_group, entering_group, arriving, arrived };

    Nanoseconds at;
    Nanoseconds not_before;  ///< Earliest arrival of the last byte.
    /// Number of the event, which orders events of equal time, and in the low three bits the kind.
    std::uint64_t sequence;
    Number op;              ///< leaving_group, entering_group: the send; arriving: the receive.
    std::uint32_t segment;  ///< Within the op.

    Kind kind() const { return static_cast<Kind>(sequence & 7); }
    /// Branchless, as the branches would be unpredictable.
    bool operator>(const Event& other) const {
      const bool later = at > other.at, same = at == other.at, behind = sequence > other.sequence;
      return static_cast<int>(later) | (static_cast<int>(same) & static_cast<int>(behind));
    }
  };
  struct State {
    Task first = 0;  ///< Its first segment.
    std::uint32_t segments = 1;
    std::uint32_t issued = 0;  ///< Segments that began.
    std::uint32_t done = 0;    ///< Segments that ended.
    std::uint32_t met = 0;     ///< First dependency that is not known to be complete.
    bool released = true;      ///< False while one of its segments is being served.
    Nanoseconds transfer = 0;  ///< Time of a segment in the port.
    Nanoseconds handling = 0;  ///< CPU time of a segment: message handling, reduction, or both.
    double bytes = 0;          ///< Bytes of one segment.
    Nanoseconds begin = -1;
    Nanoseconds end = 0;
  };

  void cut_into_segments(const CostOptions& options);
  Nanoseconds processor_time() const;
  bool may_begin(Number op);
  void try_issue(Number op, Nanoseconds now, Task cause);
  void issue_send(Number op, std::uint32_t segment, Nanoseconds now);
  Nanoseconds cross_wire(Number send, Task task, Nanoseconds from);
  Nanoseconds uplink_time(Number send, std::uint32_t uplink) const;
  void leave_group(const Event& event);
  void enter_group(const Event& event);
  void arrive(Number send, std::uint32_t segment, Nanoseconds begin, Nanoseconds end);
  void receive(const Event& event);
  void finish(const Event& event);
  Task task(const Event& event) const { return states_[event.op].first + event.segment; }
  Nanoseconds occupy(Server& server, Task task, Nanoseconds now, Nanoseconds duration);
  void post(Event::Kind kind, Number op, std::uint32_t segment, Nanoseconds at,
            Nanoseconds not_before = 0) {
    events_.push({at, not_before, sequence_++ << 3 | kind, op, segment});
  }

  const MessageGraph& graph_;
  const LinkMap& links_;
  std::vector<State> states_;       ///< By op.
  std::vector<Task> cause_;         ///< By task: the task that made it ready.
  std::vector<Task> served_first_;  ///< By task: served before it where it queued last.
  std::vector<Server> processors_;  ///< By rank.
  std::vector<Port> ports_;
  std::vector<Server> wires_;
  std::vector<Port> uplinks_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::uint64_t sequence_ = 0;
  Nanoseconds end_ = 0;
  Task last_done_ = kNoTask;
};

/// Sets OpLoad::incast of the receives of ranks to which several others send. Between hosts their
/// streams share the rank's receive window, inside a host they share caches. A rank with no more
/// senders than the partners of a butterfly, ceil(log2 `ranks`), is not slowed, because a
/// butterfly's partners send one after the other. `ranks`: of the schedule, all of which the graph
/// may not have.
void add_incast(const MessageGraph& graph, int ranks, const IncastCosts& costs, LinkMap& links);

}  // namespace gradwire::schedule
