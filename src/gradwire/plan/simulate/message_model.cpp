#include "gradwire/plan/simulate/message_model.h"

#include <algorithm>
#include <cmath>

#include "gradwire/base/check.h"
#include "gradwire/plan/simulate/executor_segment.h"
#include "gradwire/schedule/program_set.h"

namespace gradwire {
namespace {

/// Segments of all ops together, above which messages are cut into fewer.
constexpr std::size_t kMaxTasks = 1 << 17;

double nanoseconds(Duration duration) {
  return static_cast<double>(duration.count());
}

double transfer(double bytes, double rate) {
  return 1e9 * bytes / rate;
}

bool is_send(OpKind kind) {
  return kind == OpKind::send;
}

bool is_receive(OpKind kind) {
  return kind == OpKind::recv || kind == OpKind::recv_reduce;
}

}  // namespace

MessageModel::MessageModel(const MessageGraph& graph, const Fabric& fabric, double bytes,
                           const CostOptions& options)
    : graph_(graph),
      fabric_(fabric),
      options_(options),
      states_(graph.size()),
      processors_(graph.ranks()),
      insides_(graph.ranks()) {
  for (Port& inside : insides_) inside.rate = fabric.inside.bytes_per_second;
  for (Number host = 0; host < graph.hosts(); ++host)
    ports_.push_back({fabric.port_rate(static_cast<int>(host)), {}, {}});
  if (fabric.has_racks() && fabric.oversubscription > 1) {
    const int racks = fabric.rack_of(fabric.hosts - 1) + 1;
    racks_.assign(static_cast<std::size_t>(racks), {fabric.uplink_rate(), {}, {}});
  }
  cut_into_segments(bytes);
}

void MessageModel::cut_into_segments(double bytes) {
  const std::size_t affordable = std::max<std::size_t>(1, kMaxTasks / (states_.size() + 1));
  const double most = static_cast<double>(std::min<std::size_t>(options_.max_segments, affordable));
  for (Number op = 0; op < graph_.size(); ++op) {
    State& state = states_[op];
    const double length = graph_.op(op).share * bytes;
    const std::size_t segment =
        options_.segment_bytes > 0 ? options_.segment_bytes : executor_segment(length);
    const double real = std::max(1.0, std::ceil(length / static_cast<double>(segment) - 1e-9));
    const double modelled = std::min(real, most);
    state.segments = static_cast<std::uint32_t>(modelled);
    state.bytes = length / modelled;
    state.real_segments = real / modelled;
  }
}

double MessageModel::run() {
  for (Number op = 0; op < graph_.size(); ++op) try_issue(op, 0);
  while (!events_.empty()) {
    const Event event = events_.top();
    events_.pop();
    switch (event.kind) {
      case Event::leaving_rack:
        leave_rack(event);
        break;
      case Event::entering_rack:
        enter_rack(event);
        break;
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
  for (const State& state : states_) GRADWIRE_CHECK(state.done == state.segments);
  return 1e-9 * end_;
}

bool MessageModel::may_begin(Number op) {
  State& state = states_[op];
  if (!state.released || state.issued == state.segments) return false;
  const auto before = graph_.before(op);
  // What is over stays so: a root waits for thousands, and is asked each time.
  const auto over = [&](const MessageGraph::Arrow& arrow) {
    return states_[arrow.to].done == states_[arrow.to].segments;
  };
  while (state.met < before.size() && over(before[state.met])) ++state.met;
  return std::ranges::all_of(before.subspan(state.met), [&](const MessageGraph::Arrow& arrow) {
    return over(arrow) || (!arrow.whole && states_[arrow.to].done > state.issued);
  });
}

/// Begins the op's next segment, unless something holds it back, which then tries again later.
void MessageModel::try_issue(Number op, double now) {
  const OpKind kind = graph_.op(op).kind;
  if (is_receive(kind) || !may_begin(op)) return;
  ++states_[op].issued;
  states_[op].released = false;
  if (is_send(kind)) return issue_send(op, now);
  post(Event::done, processors_[graph_.op(op).rank].occupy(now, compute_time(op)), op);
}

void MessageModel::issue_send(Number op, double now) {
  const State& state = states_[op];
  const double ready = processors_[graph_.op(op).rank].occupy(now, handling_time(op));
  const double sending = transfer(state.bytes, port(op).rate);
  const double gone = port(op).out.occupy(ready, sending);
  if (crosses_racks(op)) {
    post(Event::leaving_rack, gone - sending, op, gone);
  } else {
    post(Event::arriving, gone - sending + latency(op), graph_.op(op).partner, gone + latency(op));
  }
  post(Event::done, gone, op);
}

bool MessageModel::crosses_racks(Number send) const {
  return !racks_.empty() && !graph_.op(send).inside && rack(send) != rack(graph_.op(send).partner);
}

int MessageModel::rack(Number op) const {
  return fabric_.rack_of(static_cast<int>(graph_.op(op).host));
}

/// Bytes flow on as they come: a link begins when what is before it does, and ends no sooner.
void MessageModel::leave_rack(const Event& event) {
  Port& up = racks_[static_cast<std::size_t>(rack(event.op))];
  const double crossing = transfer(states_[event.op].bytes, up.rate);
  const double end = std::max(event.not_before, up.out.occupy(event.at, crossing));
  post(Event::entering_rack, end - crossing, event.op, end);
}

void MessageModel::enter_rack(const Event& event) {
  const Number other = graph_.op(event.op).partner;
  Port& down = racks_[static_cast<std::size_t>(rack(other))];
  const double bytes = states_[event.op].bytes;
  const double end =
      std::max(event.not_before, down.in.occupy(event.at, transfer(bytes, down.rate)));
  const double begin = std::max(event.at, end - transfer(bytes, port(other).rate));
  post(Event::arriving, begin + latency(event.op), other, end + latency(event.op));
}

double MessageModel::latency(Number op) const {
  return nanoseconds((graph_.op(op).inside ? fabric_.inside : fabric_.port).latency);
}

void MessageModel::receive(const Event& event) {
  Port& into = port(event.op);
  const double end = into.in.occupy(event.at, transfer(states_[event.op].bytes, into.rate));
  // A slow sender's segment takes longer, but leaves room for others' meanwhile.
  post(Event::arrived, std::max(end, event.not_before), event.op);
}

void MessageModel::process_received(const Event& event) {
  const MessageGraph::Op& op = graph_.op(event.op);
  const double duration =
      handling_time(event.op) + (op.kind == OpKind::recv_reduce ? compute_time(event.op) : 0);
  post(Event::done, processors_[op.rank].occupy(event.at, duration), event.op);
}

void MessageModel::finish(const Event& event) {
  State& state = states_[event.op];
  ++state.done;
  state.released = true;
  end_ = std::max(end_, event.at);
  try_issue(event.op, event.at);
  for (const MessageGraph::Arrow& arrow : graph_.behind(event.op)) try_issue(arrow.to, event.at);
}

MessageModel::Port& MessageModel::port(Number op) {
  const MessageGraph::Op& end = graph_.op(op);
  return end.inside ? insides_[end.rank] : ports_[end.host];
}

/// Processor time of one segment, as sender or receiver.
double MessageModel::handling_time(Number op) const {
  const Duration each = graph_.op(op).inside ? options_.per_segment_inside : options_.per_segment;
  return nanoseconds(each) * states_[op].real_segments;
}

double MessageModel::compute_time(Number op) const {
  if (options_.reduce_bytes_per_second <= 0) return 0;
  return transfer(states_[op].bytes, options_.reduce_bytes_per_second);
}

}  // namespace gradwire
