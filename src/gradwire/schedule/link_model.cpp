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
  const Slice& slice = extent(op);
  if (slice.buffer != Buffer::scratch) return layout.byte_range(slice.first, slice.count).size();
  return layout.byte_range(program.scratch_mirrors[slice.first]).size();
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
  cut_into_segments(layout);
  connect();
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
    op.per_segment = static_cast<double>(options_.per_segment.count()) * static_cast<double>(real) /
                     static_cast<double>(modelled);
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
  const OpRef ref = programs_.ref(node);
  const Nanoseconds ready = occupy(machine(node).processor, task, now, op.per_segment);
  const Nanoseconds wire = wire_time(ref.rank, op.bytes);
  const Nanoseconds gone = occupy(machine(node).egress, task, ready, wire);
  if (op.begin < 0) op.begin = gone - wire;
  const NodeId other = partner_[node];
  const auto latency =
      static_cast<double>(topology_.path(ref.rank, programs_.ref(other).rank).latency.count());
  const Task arriving = ops_[other].first + (task - op.first);
  cause_[arriving] = task;
  post(Event::arriving, gone - wire + latency, arriving, gone + latency);
  post(Event::done, gone, task);
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
  Server& ingress = machine(node).ingress;
  const Nanoseconds wire = wire_time(programs_.ref(node).rank, op.bytes);
  Nanoseconds end = occupy(ingress, event.task, event.at, wire);
  if (op.begin < 0) op.begin = end - wire;
  end = std::max(end, event.not_before);
  ingress.free = end;
  post(Event::arrived, end, event.task);
}

void LinkModel::process_received(const Event& event) {
  const NodeId node = node_of_[event.task];
  const bool reduces = programs_.op(node).kind == OpKind::recv_reduce;
  const Nanoseconds duration = ops_[node].per_segment + (reduces ? compute_time(node) : 0);
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

LinkModel::Machine& LinkModel::machine(NodeId node) {
  return machines_[static_cast<std::size_t>(programs_.ref(node).rank)];
}

LinkModel::Nanoseconds LinkModel::wire_time(Rank rank, double bytes) const {
  return 1e9 * bytes / topology_.port(rank).bytes_per_second;
}

LinkModel::Nanoseconds LinkModel::compute_time(NodeId node) const {
  if (options_.reduce_bytes_per_second <= 0) return 0;
  return 1e9 * ops_[node].bytes / options_.reduce_bytes_per_second;
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
