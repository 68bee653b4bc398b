#pragma once

#include <cstdint>
#include <queue>
#include <vector>

#include "gradwire/schedule/cost.h"
#include "gradwire/schedule/message_graph.h"

namespace gradwire {

/// What an op of a message graph needs. Numbers are of LinkMap's vectors.
struct OpLoad {
  static constexpr std::uint32_t kNone = static_cast<std::uint32_t>(-1);

  double bytes = 0;            ///< That it moves.
  double segments = 1;         ///< That these are cut into.
  double handling = 0;         ///< Nanoseconds of a processor for each of them, at this end.
  double latency = 0;          ///< Sends: nanoseconds.
  std::uint32_t port = 0;      ///< Messages: what this end goes through.
  std::uint32_t wire = kNone;  ///< Sends: what lies between the two hosts.
  std::uint32_t up = kNone, down = kNone;  ///< Sends that leave one group of hosts for another.
};

/// What the ops of a message graph share. Rates in bytes per second.
struct LinkMap {
  std::vector<double> ports;     ///< Each direction of hosts' ports, and of what joins a rank to
                                 ///< the others of its host.
  std::vector<double> wires;     ///< Paths between two hosts that may carry less than their ports.
  std::vector<double> uplinks;   ///< Of groups of hosts (racks) to the others, each direction.
  std::vector<double> slowdown;  ///< By rank: where ranks share too few processors, more than 1.
  std::vector<OpLoad> ops;       ///< By op.
};

/// Plays a message graph through on links, segment by segment, as a queue of events in time. It
/// moves no data: the executor over simulated links (comm) does, at a thousand times the cost. The
/// only such simulation: costs of schedules, hence the tuner, and the planner's ask here.
///
/// A segment keeps its sender's processor busy, then its port, the path or the racks' links where
/// there are any, the receiver's port and its processor; each serves what comes first. Bytes flow
/// on as they come: what is behind something begins when that does, and ends no sooner.
class LinkModel {
 public:
  using Number = MessageGraph::Number;
  using Nanoseconds = double;

  /// All must outlive it. Of `options`: how many segments are told apart and how fast they are
  /// added up; the rest is in `links`.
  LinkModel(const MessageGraph& graph, const LinkMap& links, const CostOptions& options);

  /// Until when everything is done. Call once.
  Nanoseconds run();

  /// Afterwards: when an op's first segment has begun, and its last one ended.
  Nanoseconds begin(Number op) const { return states_[op].begin; }
  Nanoseconds end(Number op) const { return states_[op].end; }
  /// Those that it waited for in the end, first to last.
  std::vector<Number> critical_path() const;

 private:
  /// A segment of an op, numbered through: those of op 0, then op 1, ...
  using Task = std::uint32_t;
  static constexpr Task kNoTask = static_cast<Task>(-1);

  /// What serves one segment at a time.
  struct Server {
    Nanoseconds free = 0;
    Task last = kNoTask;
  };
  struct Port {
    Server out, in;
  };
  struct Event {
    enum Kind : std::uint8_t { done, leaving_group, entering_group, arriving, arrived };

    Nanoseconds at;
    Nanoseconds not_before;  ///< The last byte cannot be there earlier.
    /// Of two events at the same time, the one thought of first; and kind.
    std::uint64_t sequence;
    Number op;              ///< leaving_group, entering_group: the send; arriving: the receive.
    std::uint32_t segment;  ///< Of the op.

    Kind kind() const { return static_cast<Kind>(sequence & 7); }
    /// Without branches, which nobody can predict here.
    bool operator>(const Event& other) const {
      const bool later = at > other.at, same = at == other.at, behind = sequence > other.sequence;
      return static_cast<int>(later) | (static_cast<int>(same) & static_cast<int>(behind));
    }
  };
  struct State {
    Task first = 0;  ///< Its first segment.
    std::uint32_t segments = 1;
    std::uint32_t issued = 0;  ///< Segments that have begun.
    std::uint32_t done = 0;    ///< Segments that have ended.
    std::uint32_t met = 0;     ///< The first of what it waits for that is not over.
    bool released = true;      ///< Whether the next segment may begin, as far as this op goes.
    Nanoseconds transfer = 0;  ///< Of a segment through the port.
    Nanoseconds handling = 0;  ///< By the processor: as a message; adding up; or both.
    double bytes = 0;          ///< Of one segment.
    Nanoseconds begin = -1;
    Nanoseconds end = 0;
  };

  void cut_into_segments(const CostOptions& options);
  bool may_begin(Number op);
  void try_issue(Number op, Nanoseconds now, Task cause);
  void issue_send(Number op, std::uint32_t segment, Nanoseconds now);
  Nanoseconds cross_wire(Number send, Task task, Nanoseconds from);
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
  std::vector<Task> cause_;         ///< By task: what made it ready.
  std::vector<Task> served_first_;  ///< By task: whom a server took first, the last time it waited.
  std::vector<Server> processors_;  ///< By rank.
  std::vector<Port> ports_;
  std::vector<Server> wires_;
  std::vector<Port> uplinks_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::uint64_t sequence_ = 0;
  Nanoseconds end_ = 0;
  Task last_done_ = kNoTask;
};

}  // namespace gradwire
