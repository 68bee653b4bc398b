#pragma once

#include <cstdint>
#include <queue>
#include <vector>

#include "gradwire/plan/simulate/fabric.h"
#include "gradwire/plan/simulate/message_graph.h"
#include "gradwire/schedule/cost.h"

namespace gradwire {

/// Plays a message graph through, segment by segment, as a queue of events in time: what
/// schedule/link_model.h does with all ranks of a schedule, by the same rules, for as many hosts as
/// there are, or for one that stands for all, and with the links of racks. A segment that crosses
/// racks leaves through its rack's link once it has left its port, and enters through the other's.
class MessageModel {
 public:
  /// All must outlive it. A graph of one host needs a uniform fabric. options.segment_bytes 0: each
  /// message is cut as the executor does.
  MessageModel(const MessageGraph& graph, const Fabric& fabric, double bytes,
               const CostOptions& options);

  /// Seconds until everything is done. Call once.
  double run();

 private:
  using Number = MessageGraph::Number;

  // Times are in nanoseconds, as in the link model, so that what comes at the same time there does
  // so here.

  /// What serves one segment at a time.
  struct Server {
    double free = 0;
    double occupy(double now, double duration) {
      free = (now > free ? now : free) + duration;
      return free;
    }
  };
  struct Port {
    double rate = 0;  ///< Bytes per second.
    Server out, in;
  };
  struct Event {
    enum Kind : std::uint8_t { leaving_rack, entering_rack, arriving, arrived, done } kind;
    double at;
    std::uint64_t sequence;  ///< Of two events at the same time, the one thought of first.
    Number op;               ///< leaving_rack, entering_rack: the send; arriving: the receive.
    double not_before;       ///< The last byte cannot be there earlier.

    bool operator>(const Event& other) const {
      return at != other.at ? at > other.at : sequence > other.sequence;
    }
  };
  struct State {
    std::uint32_t segments = 1, issued = 0, done = 0;
    std::uint32_t met = 0;     ///< The first of what it waits for that is not over.
    bool released = true;      ///< Whether the next segment may begin, as far as this op goes.
    double bytes = 0;          ///< Of one segment.
    double real_segments = 1;  ///< That one of these stands for.
  };

  void cut_into_segments(double bytes);
  bool may_begin(Number op);
  void try_issue(Number op, double now);
  void issue_send(Number op, double now);
  void receive(const Event& event);
  void process_received(const Event& event);
  void finish(const Event& event);
  bool crosses_racks(Number send) const;
  int rack(Number op) const;
  void leave_rack(const Event& event);
  void enter_rack(const Event& event);
  double latency(Number op) const;
  double handling_time(Number op) const;
  double compute_time(Number op) const;
  Port& port(Number op);
  void post(Event::Kind kind, double at, Number op, double not_before = 0) {
    events_.push({kind, at, sequence_++, op, not_before});
  }

  const MessageGraph& graph_;
  const Fabric& fabric_;
  const CostOptions& options_;
  std::vector<State> states_;       ///< By op.
  std::vector<Server> processors_;  ///< By rank.
  std::vector<Port> insides_;       ///< By rank.
  std::vector<Port> ports_;         ///< By host.
  std::vector<Port> racks_;         ///< By rack; empty: one switch carries everything.
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::uint64_t sequence_ = 0;
  double end_ = 0;
};

}  // namespace gradwire
