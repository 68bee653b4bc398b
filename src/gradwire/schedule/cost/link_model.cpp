#include "gradwire/schedule/cost/link_model.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <tuple>

#include "gradwire/base/check.h"
#include "gradwire/schedule/cost/constants.h"
#include "gradwire/schedule/cost/segments.h"

namespace gradwire::schedule {
namespace {

double transfer(double bytes, double bytes_per_second) {
  return 1e9 * bytes / bytes_per_second;
}

bool is_send(OpKind kind) {
  return kind == OpKind::send;
}

bool is_receive(OpKind kind) {
  return kind == OpKind::recv || kind == OpKind::recv_reduce;
}

/// Returns the segment size of all messages. That of the longest message applies to the others too:
/// with segments of their own, butterflies on six hosts, in which the executor serves those that
/// are behind first, would be 17 % off, and not 10 (docs/accuracy.md).
std::size_t segment_bytes(const MessageGraph& graph, const LinkMap& links,
                          const CostOptions& options) {
  if (options.segments_per_message == 0) return options.segment_bytes;
  double longest = 0;
  for (MessageGraph::Number op = 0; op < graph.size(); ++op) {
    if (is_send(graph.op(op).kind)) longest = std::max(longest, links.ops[op].bytes);
  }
  return segment_of(static_cast<std::size_t>(longest), options.segment_bytes,
                    options.segments_per_message);
}

}  // namespace

LinkModel::LinkModel(const MessageGraph& graph, const LinkMap& links, const CostOptions& options)
    : graph_(graph),
      links_(links),
      states_(graph.size()),
      processors_(graph.ranks()),
      ports_(links.ports.size()),
      wires_(links.wires.size()),
      uplinks_(links.uplinks.size()) {
  GRADWIRE_CHECK(links.ops.size() == graph.size());
  GRADWIRE_CHECK(options.segment_bytes > 0 && options.max_segments > 0);
  cut_into_segments(options);
}

void LinkModel::cut_into_segments(const CostOptions& options) {
  const std::size_t affordable = std::max<std::size_t>(1, options.max_tasks / (states_.size() + 1));
  const auto max_segments =
      static_cast<double>(std::min<std::size_t>(options.max_segments, affordable));
  const auto segment = static_cast<double>(segment_bytes(graph_, links_, options));
  Task tasks = 0;
  for (Number op = 0; op < graph_.size(); ++op) {
    const OpLoad& load = links_.ops[op];
    const OpKind kind = graph_.op(op).kind;
    // The quotient of a share of all bytes may be a rounding error above a whole number.
    const double segments = std::max(1.0, std::ceil(load.bytes / segment - 1e-9));
    const double modelled = std::min(segments, max_segments);
    State& state = states_[op];
    state.first = tasks;
    state.segments = static_cast<std::uint32_t>(modelled);
    state.bytes = load.bytes / modelled;
    const double slowdown = links_.slowdown[graph_.op(op).rank];
    if (is_send(kind) || is_receive(kind)) {
      state.transfer = load.incast * transfer(state.bytes, links_.ports[load.port]);
      state.handling = load.handling * (segments / modelled) * slowdown;
    }
    if (!is_send(kind) && kind != OpKind::recv && options.reduce_bytes_per_second > 0)
      state.handling += transfer(state.bytes, options.reduce_bytes_per_second) * slowdown;
    // Through shared memory incast costs caches, and so processor time.
    if (load.port >= links_.hosts) state.handling *= load.incast;
    tasks += state.segments;
  }
  cause_.assign(tasks, kNoTask);
  served_first_.assign(tasks, kNoTask);
}

LinkModel::Nanoseconds LinkModel::run() {
  for (Number op = 0; op < graph_.size(); ++op) try_issue(op, 0, kNoTask);
  while (!events_.empty()) {
    const Event event = events_.top();
    events_.pop();
    switch (event.kind()) {
      case Event::done:
        finish(event);
        break;
      case Event::leaving_group:
        leave_group(event);
        break;
      case Event::entering_group:
        enter_group(event);
        break;
      case Event::arriving:
        receive(event);
        break;
      case Event::arrived:
        const State& state = states_[event.op];
        Server& processor = processors_[graph_.op(event.op).rank];
        post(Event::done, event.op, event.segment,
             occupy(processor, task(event), event.at, state.handling));
        break;
    }
  }
  for (const State& state : states_) GRADWIRE_CHECK(state.done == state.segments);
  return std::max(end_, processor_time());
}

/// Returns the time that the busiest machine's processors need at least.
LinkModel::Nanoseconds LinkModel::processor_time() const {
  if (links_.cores.empty()) return 0;
  std::vector<Nanoseconds> busy(links_.cores.size());
  for (Number op = 0; op < graph_.size(); ++op) {
    const std::uint32_t rank = graph_.op(op).rank, machine = links_.machines[rank];
    if (machine == OpLoad::kNone) continue;
    busy[machine] += states_[op].segments * states_[op].handling /
                     (links_.slowdown[rank] * links_.cores[machine]);
  }
  return std::ranges::max(busy);
}

LinkModel::Nanoseconds LinkModel::busiest_port() const {
  Nanoseconds busiest = 0;
  const auto add = [&](const Port& port) {
    busiest = std::max({busiest, port.out.busy, port.in.busy});
  };
  std::for_each_n(ports_.begin(), links_.hosts, add);
  std::ranges::for_each(uplinks_, add);
  return busiest;
}

bool LinkModel::may_begin(Number op) {
  State& state = states_[op];
  if (!state.released || state.issued == state.segments) return false;
  const auto before = graph_.predecessors(op);
  // Completed dependencies stay complete. Skip them: a root has thousands and is checked for each
  // one.
  const auto over = [&](const MessageGraph::Arrow& arrow) {
    return states_[arrow.to].done == states_[arrow.to].segments;
  };
  while (state.met < before.size() && over(before[state.met])) ++state.met;
  return std::ranges::all_of(before.subspan(state.met), [&](const MessageGraph::Arrow& arrow) {
    return over(arrow) || (!arrow.whole && states_[arrow.to].done > state.issued);
  });
}

/// Begins the op's next segment if its dependencies allow. Otherwise the dependency that blocks it
/// tries again on completion.
void LinkModel::try_issue(Number op, Nanoseconds now, Task cause) {
  const OpKind kind = graph_.op(op).kind;
  if (is_receive(kind) || !may_begin(op)) return;
  State& state = states_[op];
  const std::uint32_t segment = state.issued++;
  state.released = false;
  cause_[state.first + segment] = cause;
  if (is_send(kind)) return issue_send(op, segment, now);
  Server& processor = processors_[graph_.op(op).rank];
  const Nanoseconds end = occupy(processor, state.first + segment, now, state.handling);
  if (state.begin < 0) state.begin = end - state.handling;
  post(Event::done, op, segment, end);
}

void LinkModel::issue_send(Number op, std::uint32_t segment, Nanoseconds now) {
  State& state = states_[op];
  const OpLoad& load = links_.ops[op];
  const Task task = state.first + segment;
  const Nanoseconds ready = occupy(processors_[graph_.op(op).rank], task, now, state.handling);
  const Nanoseconds gone = occupy(ports_[load.port].out, task, ready, state.transfer);
  const Nanoseconds from = gone - state.transfer;
  if (state.begin < 0) state.begin = from;
  if (load.up != OpLoad::kNone) {
    post(Event::leaving_group, op, segment, from, gone);
  } else {
    const Nanoseconds crossed = cross_wire(op, task, from);
    arrive(op, segment, std::max(from, crossed - states_[graph_.op(op).partner].transfer),
           std::max(gone, crossed));
  }
  post(Event::done, op, segment, gone);
}

/// Returns the time at which the last byte of a segment, which begins to leave at `from`, has
/// crossed the path between the two ports. Returns `from` if that path cannot be slower than the
/// ports.
LinkModel::Nanoseconds LinkModel::cross_wire(Number send, Task task, Nanoseconds from) {
  const std::uint32_t wire = links_.ops[send].wire;
  if (wire == OpLoad::kNone) return from;
  return occupy(wires_[wire], task, from, transfer(states_[send].bytes, links_.wires[wire]));
}

LinkModel::Nanoseconds LinkModel::uplink_time(Number send, std::uint32_t uplink) const {
  return links_.ops[send].alike * transfer(states_[send].bytes, links_.uplinks[uplink]);
}

void LinkModel::leave_group(const Event& event) {
  const std::uint32_t up = links_.ops[event.op].up;
  const Nanoseconds crossing = uplink_time(event.op, up);
  const Nanoseconds end =
      std::max(event.not_before, occupy(uplinks_[up].out, task(event), event.at, crossing));
  post(Event::entering_group, event.op, event.segment, end - crossing, end);
}

void LinkModel::enter_group(const Event& event) {
  const std::uint32_t down = links_.ops[event.op].down;
  const Nanoseconds crossing = uplink_time(event.op, down);
  const Nanoseconds end =
      std::max(event.not_before, occupy(uplinks_[down].in, task(event), event.at, crossing));
  const Nanoseconds receiving = states_[graph_.op(event.op).partner].transfer;
  arrive(event.op, event.segment, std::max(event.at, end - receiving), end);
}

/// Posts the arrival of a segment that crosses the network from `begin` to `end`, without the
/// latency.
void LinkModel::arrive(Number send, std::uint32_t segment, Nanoseconds begin, Nanoseconds end) {
  const Number receive = graph_.op(send).partner;
  const Nanoseconds latency = links_.ops[send].latency;
  cause_[states_[receive].first + segment] = states_[send].first + segment;
  post(Event::arriving, receive, segment, begin + latency, end + latency);
}

void LinkModel::receive(const Event& event) {
  State& state = states_[event.op];
  Port& into = ports_[links_.ops[event.op].port];
  const Nanoseconds end = occupy(into.in, task(event), event.at, state.transfer);
  if (state.begin < 0) state.begin = end - state.transfer;
  // A slow sender's segment arrives later, but does not occupy the receiver's port for longer.
  post(Event::arrived, event.op, event.segment, std::max(end, event.not_before));
}

void LinkModel::finish(const Event& event) {
  State& state = states_[event.op];
  ++state.done;
  state.end = event.at;
  state.released = true;
  end_ = std::max(end_, event.at);
  last_done_ = task(event);
  try_issue(event.op, event.at, last_done_);
  for (const MessageGraph::Arrow& arrow : graph_.successors(event.op))
    try_issue(arrow.to, event.at, last_done_);
}

/// Queues for the server, then occupies it for `duration`. Returns the time of completion.
LinkModel::Nanoseconds LinkModel::occupy(Server& server, Task task, Nanoseconds now,
                                         Nanoseconds duration) {
  // A queued task waited for the task served before it, not for the task that made it ready.
  if (server.free > now && server.last != task) served_first_[task] = server.last;
  server.free = std::max(server.free, now) + duration;
  server.busy += duration;
  server.last = task;
  return server.free;
}

/// Walks back from the last task over what each task waited for last: the task served before it, or
/// the task that made it ready. Two tasks may each have queued behind the other at different
/// servers. From such a cycle on, the walk follows only what made tasks ready, which is always
/// earlier.
std::vector<LinkModel::Number> LinkModel::critical_path() const {
  std::vector<Number> path;
  std::vector<bool> seen(cause_.size());
  bool in_a_circle = false;
  for (Task task = last_done_; task != kNoTask;) {
    const auto behind = std::ranges::upper_bound(states_, task, {}, &State::first);
    const auto op = static_cast<Number>(behind - states_.begin() - 1);
    if (path.empty() || path.back() != op) path.push_back(op);
    seen[task] = true;
    const Task before = served_first_[task] == kNoTask ? cause_[task] : served_first_[task];
    in_a_circle = in_a_circle || (before != kNoTask && seen[before]);
    task = in_a_circle ? cause_[task] : before;
  }
  std::ranges::reverse(path);
  return path;
}

namespace {

using Number = MessageGraph::Number;

/// A rank's receives through one port, which are the messages between hosts or those inside its
/// host; then the sender.
struct Stream {
  Number rank = 0;
  std::uint32_t port = 0;
  Rank sender = -1;

  auto operator<=>(const Stream&) const = default;
};

bool is_receive(const MessageGraph::Op& op) {
  return op.kind == OpKind::recv || op.kind == OpKind::recv_reduce;
}

Stream stream_of(const MessageGraph& graph, const LinkMap& links, Number op) {
  return {graph.op(op).rank, links.ops[op].port, graph.op(op).peer};
}

/// Returns all streams in order, each once.
std::vector<Stream> streams_of(const MessageGraph& graph, const LinkMap& links) {
  std::vector<Stream> streams;
  for (Number op = 0; op < graph.size(); ++op) {
    if (is_receive(graph.op(op))) streams.push_back(stream_of(graph, links, op));
  }
  std::ranges::sort(streams);
  const auto repeated = std::ranges::unique(streams);
  streams.erase(repeated.begin(), repeated.end());
  return streams;
}

double factor_between_hosts(std::size_t senders, bool forwards, const IncastCosts& costs) {
  const double beyond =
      static_cast<double>(std::clamp<std::size_t>(senders, 2, fitted::kIncastMaxStreams)) - 2;
  return 1 + (forwards ? costs.forwarding : costs.direct) * beyond;
}

}  // namespace

void add_incast(const MessageGraph& graph, int ranks, const IncastCosts& costs, LinkMap& links) {
  const auto rounds = static_cast<std::size_t>(std::bit_width(static_cast<unsigned>(ranks - 1)));
  const bool forwards = graph.longest_chain() > 2;
  const std::vector<Stream> streams = streams_of(graph, links);
  for (Number op = 0; op < graph.size(); ++op) {
    if (!is_receive(graph.op(op))) continue;
    const Stream own = stream_of(graph, links, op);
    const auto [first, last] = std::ranges::equal_range(
        streams, std::tuple(own.rank, own.port), {},
        [](const Stream& stream) { return std::tuple(stream.rank, stream.port); });
    const auto senders = static_cast<std::size_t>(last - first);
    if (senders <= rounds) continue;
    OpLoad& load = links.ops[op];
    if (own.port < links.hosts) {
      load.incast = factor_between_hosts(senders, forwards, costs);
    } else if (load.bytes >= costs.inside_bytes) {
      load.incast = 1 + costs.inside;
    }
  }
}

}  // namespace gradwire::schedule
