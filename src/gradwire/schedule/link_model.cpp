#include "gradwire/schedule/link_model.h"

#include <algorithm>
#include <cmath>

#include "gradwire/base/check.h"

namespace gradwire {
namespace {

/// Segments of all ops together, above which messages are cut into fewer.
constexpr std::size_t kMaxTasks = 1 << 15;

Duration rounded(double nanoseconds) {
  return Duration(std::llround(nanoseconds));
}

}  // namespace

std::size_t length(const Op& op, const Program& program, const ChunkLayout& layout) {
  return layout.size(extent(op), program);
}

LinkModel::LinkModel(const ProgramSet& programs, const std::vector<NodeId>& partner,
                     const proof::WaitGraph& graph, const Topology& topology,
                     const ChunkLayout& layout, const CostOptions& options)
    : programs_(programs),
      partner_(partner),
      graph_(graph),
      topology_(topology),
      options_(options),
      ops_(programs.size()),
      machines_(static_cast<std::size_t>(programs.ranks())) {
  GRADWIRE_CHECK(options.segment_bytes > 0 && options.max_segments > 0);
  set_up_machines();
  cut_into_segments(layout);
  connect();
}

void LinkModel::set_up_machines() {
  for (int number = 0; number < topology_.hosts(); ++number) {
    const Host& host = topology_.host(number);
    const auto ranks = topology_.ranks_on(number);
    ports_.push_back(
        {.bytes_per_second = host.port().bytes_per_second, .egress = {}, .ingress = {}});
    for (Rank rank : ranks) {
      Machine& machine = machines_[static_cast<std::size_t>(rank)];
      machine.inside.bytes_per_second = host.inside.bytes_per_second;
      if (host.cores > 0) {
        machine.slowdown = std::max(1.0, static_cast<double>(ranks.size()) / host.cores);
      }
    }
    for (int other = 0; other < topology_.hosts(); ++other) {
      const auto measured = topology_.measured(number, other);
      if (measured) wires_[{number, other}].bytes_per_second = measured->bytes_per_second;
    }
  }
}

void LinkModel::cut_into_segments(const ChunkLayout& layout) {
  const std::size_t affordable = std::max<std::size_t>(1, kMaxTasks / (ops_.size() + 1));
  const std::size_t most = std::min<std::size_t>(options_.max_segments, affordable);
  for (NodeId node = 0; node < ops_.size(); ++node) {
    const std::size_t bytes =
        length(programs_.op(node), programs_.program(programs_.ref(node).rank), layout);
    const std::size_t real =
        std::max<std::size_t>(1, (bytes + options_.segment_bytes - 1) / options_.segment_bytes);
    const std::size_t modelled = std::min(real, most);
    OpState& op = ops_[node];
    op.first = static_cast<Task>(node_of_.size());
    op.segments = static_cast<std::uint32_t>(modelled);
    op.bytes = static_cast<double>(bytes) / static_cast<double>(modelled);
    op.real_segments = static_cast<double>(real) / static_cast<double>(modelled);
    node_of_.insert(node_of_.end(), modelled, node);
  }
  cause_.assign(node_of_.size(), kNoTask);
}

void LinkModel::connect() {
  behind_first_.assign(ops_.size() + 1, 0);
  for (NodeId node = 0; node < ops_.size(); ++node) {
    for (const proof::Arrow& arrow : graph_.before(node)) ++behind_first_[arrow.from + 1];
  }
  for (std::size_t i = 1; i < behind_first_.size(); ++i) behind_first_[i] += behind_first_[i - 1];
  behind_.resize(behind_first_.back());
  std::vector<std::uint32_t> next(behind_first_.begin(), behind_first_.end() - 1);
  for (NodeId node = 0; node < ops_.size(); ++node) {
    for (const proof::Arrow& arrow : graph_.before(node)) behind_[next[arrow.from]++] = node;
  }
}

Estimate LinkModel::run() {
  for (NodeId node = 0; node < ops_.size(); ++node) try_issue(node, 0, kNoTask);
  while (!events_.empty()) {
    const Event event = events_.top();
    events_.pop();
    switch (event.kind) {
      case Event::arriving:
        receive(event);
        break;
      case Event::arrived:
        process_received(event);
        break;
      case Event::done:
        finish(event);
        break;
    }
  }
  return result();
}

bool LinkModel::may_begin(NodeId node) const {
  const OpState& op = ops_[node];
  if (!op.released || op.issued == op.segments) return false;
  return std::ranges::all_of(graph_.before(node), [&](const proof::Arrow& arrow) {
    const OpState& earlier = ops_[arrow.from];
    return earlier.done == earlier.segments || (!arrow.whole && earlier.done > op.issued);
  });
}

/// Begins the op's next segment, unless something holds it back, which then tries again later.
void LinkModel::try_issue(NodeId node, Nanoseconds now, Task cause) {
  if (receives(programs_.op(node)) || !may_begin(node)) return;
  OpState& op = ops_[node];
  const Task task = op.first + op.issued++;
  op.released = false;
  cause_[task] = cause;
  if (sends(programs_.op(node))) {
    issue_send(task, node, now);
  } else {
    issue_local(task, node, now);
  }
}

void LinkModel::issue_send(Task task, NodeId node, Nanoseconds now) {
  OpState& op = ops_[node];
  const Nanoseconds ready = occupy(machine(node).processor, task, now, handling_time(node));
  const Nanoseconds sending = 1e9 * op.bytes / port(node).bytes_per_second;
  const Nanoseconds gone = occupy(port(node).egress, task, ready, sending);
  if (op.begin < 0) op.begin = gone - sending;
  const Nanoseconds crossed = cross_wire(node, task, gone - sending);
  const NodeId other = partner_[node];
  const auto latency =
      static_cast<double>(topology_.path(rank_of(node), rank_of(other)).latency.count());
  const Task arriving = ops_[other].first + (task - op.first);
  cause_[arriving] = task;
  const Nanoseconds receiving = 1e9 * op.bytes / port(other).bytes_per_second;
  post(Event::arriving, std::max(gone - sending, crossed - receiving) + latency, arriving,
       std::max(gone, crossed) + latency);
  post(Event::done, gone, task);
}

/// When the last byte of a segment that begins to leave at `from` is through what lies between the
/// two ports, if that may be slower than they.
LinkModel::Nanoseconds LinkModel::cross_wire(NodeId node, Task task, Nanoseconds from) {
  const auto wire =
      wires_.find({topology_.host_of(rank_of(node)), topology_.host_of(rank_of(partner_[node]))});
  if (wire == wires_.end()) return from;
  return occupy(wire->second.server, task, from,
                1e9 * ops_[node].bytes / wire->second.bytes_per_second);
}

void LinkModel::issue_local(Task task, NodeId node, Nanoseconds now) {
  OpState& op = ops_[node];
  const Nanoseconds duration = compute_time(node);
  const Nanoseconds end = occupy(machine(node).processor, task, now, duration);
  if (op.begin < 0) op.begin = end - duration;
  post(Event::done, end, task);
}

void LinkModel::receive(const Event& event) {
  const NodeId node = node_of_[event.task];
  OpState& op = ops_[node];
  Port& into = port(node);
  const Nanoseconds receiving = 1e9 * op.bytes / into.bytes_per_second;
  const Nanoseconds end = occupy(into.ingress, event.task, event.at, receiving);
  if (op.begin < 0) op.begin = end - receiving;
  // A slow sender's segment takes longer, but leaves room for others' meanwhile.
  post(Event::arrived, std::max(end, event.not_before), event.task);
}

void LinkModel::process_received(const Event& event) {
  const NodeId node = node_of_[event.task];
  const bool reduces = programs_.op(node).kind == OpKind::recv_reduce;
  const Nanoseconds duration = handling_time(node) + (reduces ? compute_time(node) : 0);
  const Nanoseconds end = occupy(machine(node).processor, event.task, event.at, duration);
  post(Event::done, end, event.task);
}

void LinkModel::finish(const Event& event) {
  const NodeId node = node_of_[event.task];
  OpState& op = ops_[node];
  ++op.done;
  op.end = event.at;
  op.released = true;
  last_done_ = event.task;
  try_issue(node, event.at, event.task);
  for (std::uint32_t i = behind_first_[node]; i < behind_first_[node + 1]; ++i) {
    try_issue(behind_[i], event.at, event.task);
  }
}

/// Waits until the server is free, then keeps it busy. Returns when it is done.
LinkModel::Nanoseconds LinkModel::occupy(Server& server, Task task, Nanoseconds now,
                                         Nanoseconds duration) {
  // What comes second has waited for what came first, not for what made it ready.
  if (server.free > now && server.last != task) cause_[task] = server.last;
  server.free = std::max(server.free, now) + duration;
  server.last = task;
  return server.free;
}

void LinkModel::post(Event::Kind kind, Nanoseconds at, Task task, Nanoseconds not_before) {
  events_.push({kind, at, sequence_++, task, not_before});
}

bool LinkModel::stays_inside(NodeId node) const {
  return topology_.same_host(rank_of(node), rank_of(partner_[node]));
}

/// What a message's end goes through.
LinkModel::Port& LinkModel::port(NodeId node) {
  if (stays_inside(node)) return machine(node).inside;
  return ports_[static_cast<std::size_t>(topology_.host_of(rank_of(node)))];
}

/// Processor time of one segment, as sender or receiver.
LinkModel::Nanoseconds LinkModel::handling_time(NodeId node) {
  const Duration each = stays_inside(node) ? options_.per_segment_inside : options_.per_segment;
  return static_cast<double>(each.count()) * ops_[node].real_segments * machine(node).slowdown;
}

LinkModel::Nanoseconds LinkModel::compute_time(NodeId node) {
  if (options_.reduce_bytes_per_second <= 0) return 0;
  return 1e9 * ops_[node].bytes / options_.reduce_bytes_per_second * machine(node).slowdown;
}

Estimate LinkModel::result() const {
  Estimate estimate;
  estimate.ops.resize(machines_.size());
  for (NodeId node = 0; node < ops_.size(); ++node) {
    const OpState& op = ops_[node];
    GRADWIRE_CHECK(op.done == op.segments);
    estimate.ops[static_cast<std::size_t>(programs_.ref(node).rank)].push_back(
        {rounded(op.begin), rounded(op.end)});
    estimate.total = std::max(estimate.total, rounded(op.end));
  }
  estimate.critical_path = trace_back();
  return estimate;
}

std::vector<OpRef> LinkModel::trace_back() const {
  std::vector<OpRef> path;
  for (Task task = last_done_; task != kNoTask; task = cause_[task]) {
    const OpRef ref = programs_.ref(node_of_[task]);
    if (path.empty() || !(path.back() == ref)) path.push_back(ref);
  }
  std::ranges::reverse(path);
  return path;
}

}  // namespace gradwire
