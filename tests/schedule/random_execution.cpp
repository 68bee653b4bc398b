#include "tests/schedule/random_execution.h"

#include <algorithm>
#include <deque>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "gradwire/schedule/program_set.h"

namespace gradwire::test {
namespace {

constexpr std::size_t kBytes = 2;  // Size of every chunk.

/// A byte in flight: its receive, its position in it, and its value.
struct Flying {
  schedule::NodeId receive;
  std::size_t byte;
  std::string value;
};

class Execution {
 public:
  Execution(const schedule::Schedule& schedule, bool in_place, Random& random)
      : set_(schedule),
        partner_(schedule::match_messages(set_)),
        in_place_(in_place),
        random_(random),
        unbuffered_(random.one_in(2)),
        done_(set_.size(), 0),
        complete_(set_.size(), false),
        started_(static_cast<std::size_t>(schedule.ranks), false),
        straggler_(static_cast<Rank>(random.below(static_cast<std::uint64_t>(schedule.ranks)))) {
    fill();
  }

  std::string run() {
    while (problem_.empty()) {
      const std::vector<Action> actions = possible();
      if (actions.empty()) break;
      act(actions[random_.below(actions.size())]);
    }
    if (!problem_.empty()) return problem_;
    for (schedule::NodeId node = 0; node < set_.size(); ++node) {
      if (!complete_[node]) return fmt::format("rank {} is stuck", set_.ref(node).rank);
    }
    return check();
  }

 private:
  using Stream = std::pair<Rank, Rank>;
  using Cell = std::tuple<Rank, schedule::Buffer, std::size_t>;
  struct Action {
    enum { start, op, arrive } kind;
    Rank rank = 0;
    schedule::NodeId node = 0;
    Stream stream{};
  };

  const schedule::Schedule& schedule() const { return set_.schedule(); }

  void fill() {
    const schedule::CollectiveSpec& spec = schedule().spec;
    const bool broadcast = spec.collective == schedule::Collective::broadcast;
    for (Rank rank = 0; rank < set_.ranks(); ++rank) {
      if (broadcast && rank != spec.root) continue;
      const schedule::Buffer buffer =
          broadcast ? schedule::Buffer::output : schedule::Buffer::input;
      const std::size_t bytes =
          kBytes * schedule::chunks_of(schedule(), rank, set_.program(rank), buffer);
      for (std::size_t b = 0; b < bytes; ++b) {
        cell(rank, {buffer, 0, 0}, b) = fmt::format("<{}.{}>", rank, b);
      }
    }
  }

  std::string& cell(Rank rank, const schedule::Slice& slice, std::size_t byte) {
    const schedule::Collective collective = schedule().spec.collective;
    std::size_t at = slice.first * kBytes + byte;
    schedule::Buffer buffer = slice.buffer;
    const bool has_output =
        collective != schedule::Collective::reduce || rank == schedule().spec.root;
    if (in_place_ && buffer == schedule::Buffer::input && has_output) {
      buffer = schedule::Buffer::output;
      if (collective == schedule::Collective::all_gather)
        at += static_cast<std::size_t>(rank) * kBytes;
    }
    return memory_.try_emplace({rank, buffer, at}, "?").first->second;
  }

  std::size_t size(schedule::NodeId node) const {
    return schedule::extent(set_.op(node)).count * kBytes;
  }

  bool allowed(schedule::NodeId node, std::size_t byte) const {
    const schedule::OpRef ref = set_.ref(node);
    const schedule::Program& program = set_.program(ref.rank);
    const schedule::Op& op = program.ops[ref.op];
    return std::ranges::all_of(program.after(op), [&](schedule::OpIndex earlier) {
      const schedule::NodeId other = set_.node(ref.rank, earlier);
      return complete_[other] ||
             (schedule::flows_through(program.ops[earlier], op) && done_[other] > byte);
    });
  }

  bool started(Rank rank) const { return started_[static_cast<std::size_t>(rank)]; }

  bool possible(schedule::NodeId node) const {
    const schedule::Op& op = set_.op(node);
    if (complete_[node] || schedule::receives(op) || !started(set_.ref(node).rank)) return false;
    if (!allowed(node, done_[node])) return false;
    if (!schedule::sends(op) || !unbuffered_) return true;
    const auto stream = streams_.find({set_.ref(node).rank, op.peer});
    return started(op.peer) && (stream == streams_.end() || stream->second.empty());
  }

  std::vector<Action> possible() const {
    std::vector<Action> actions;
    for (schedule::NodeId node = 0; node < set_.size(); ++node) {
      if (possible(node)) actions.push_back({.kind = Action::op, .node = node});
    }
    for (const auto& [stream, flying] : streams_) {
      if (flying.empty() || !started(stream.second)) continue;
      actions.push_back({.kind = Action::arrive, .stream = stream});
    }
    for (Rank rank = 0; rank < set_.ranks(); ++rank) {
      if (started(rank) || rank == straggler_) continue;
      actions.push_back({.kind = Action::start, .rank = rank});
    }
    if (actions.empty() && !started(straggler_)) {
      actions.push_back({.kind = Action::start, .rank = straggler_});
    }
    return actions;
  }

  void act(const Action& action) {
    switch (action.kind) {
      case Action::start:
        started_[static_cast<std::size_t>(action.rank)] = true;
        break;
      case Action::op:
        do_byte(action.node);
        break;
      case Action::arrive:
        arrive(streams_[action.stream]);
        break;
    }
    check_barrier();
  }

  void advance(schedule::NodeId node) {
    ++done_[node];
    if (done_[node] >= size(node)) complete_[node] = true;
  }

  void do_byte(schedule::NodeId node) {
    const schedule::Op& op = set_.op(node);
    const Rank rank = set_.ref(node).rank;
    const std::size_t byte = done_[node];
    const bool empty = size(node) == 0;
    const std::string src = empty ? "" : cell(rank, op.src, byte);
    if (schedule::sends(op)) {
      if (!allowed(partner_[node], byte)) problem_ = "a receive waited";
      streams_[{rank, op.peer}].push_back({partner_[node], byte, src});
    } else {
      std::string& dst = cell(rank, op.dst, byte);
      dst = postscaled(op, op.kind == schedule::OpKind::copy ? src : sum(op, dst, src));
    }
    advance(node);
  }

  void arrive(std::deque<Flying>& stream) {
    const auto [node, byte, value] = std::exchange(stream.front(), {});
    stream.pop_front();
    const schedule::Op& op = set_.op(node);
    const Rank rank = set_.ref(node).rank;
    if (size(node) > 0) {
      const bool reduces = op.kind == schedule::OpKind::recv_reduce;
      const std::string result = reduces ? sum(op, cell(rank, op.src, byte), value) : value;
      cell(rank, op.dst, byte) = postscaled(op, result);
    }
    advance(node);
  }

  static std::string sum(const schedule::Op& op, const std::string& local,
                         const std::string& incoming) {
    return op.order == schedule::OperandOrder::local_first ? "(" + local + "+" + incoming + ")"
                                                           : "(" + incoming + "+" + local + ")";
  }

  static std::string postscaled(const schedule::Op& op, const std::string& value) {
    return op.postscale ? "F" + value : value;
  }

  void check_barrier() {
    if (schedule().spec.collective != schedule::Collective::barrier || started(straggler_)) return;
    for (Rank rank = 0; rank < set_.ranks(); ++rank) {
      const auto ops = static_cast<schedule::OpIndex>(set_.program(rank).ops.size());
      bool left = rank != straggler_;
      for (schedule::OpIndex op = 0; op < ops; ++op) left = left && complete_[set_.node(rank, op)];
      if (left) problem_ = fmt::format("rank {} left before rank {} came", rank, straggler_);
    }
  }

  std::string check() {
    const schedule::CollectiveSpec& spec = schedule().spec;
    if (spec.collective == schedule::Collective::barrier) return "";
    for (Rank rank = 0; rank < set_.ranks(); ++rank) {
      if (spec.collective == schedule::Collective::point_to_point && rank != spec.target) continue;
      const std::size_t bytes = kBytes * schedule::chunks_of(schedule(), rank, set_.program(rank),
                                                             schedule::Buffer::output);
      for (std::size_t b = 0; b < bytes; ++b) {
        const std::string& held = cell(rank, {schedule::Buffer::output, 0, 0}, b);
        if (!is_right(rank, b, held)) {
          return fmt::format("rank {} has {} in byte {}", rank, held, b);
        }
      }
    }
    return "";
  }

  bool is_right(Rank rank, std::size_t byte, const std::string& held) {
    const schedule::CollectiveSpec& spec = schedule().spec;
    const std::size_t own = static_cast<std::size_t>(rank) * kBytes;
    switch (spec.collective) {
      case schedule::Collective::all_reduce:
        return is_complete(held, byte) && held == cell(0, {schedule::Buffer::output, 0, 0}, byte);
      case schedule::Collective::reduce_scatter:
        return is_complete(held, own + byte);
      case schedule::Collective::reduce:
        return is_complete(held, byte);
      case schedule::Collective::all_gather:
      case schedule::Collective::gather:
        return held == fmt::format("<{}.{}>", byte / kBytes, byte % kBytes);
      case schedule::Collective::scatter:
        return held == fmt::format("<{}.{}>", spec.root, own + byte);
      case schedule::Collective::all_to_all:
        return held == fmt::format("<{}.{}>", byte / kBytes, own + byte % kBytes);
      default:
        return held == fmt::format("<{}.{}>", spec.root, byte);
    }
  }

  bool is_complete(const std::string& held, std::size_t byte) const {
    for (Rank rank = 0; rank < set_.ranks(); ++rank) {
      const std::string leaf = fmt::format("<{}.{}>", rank, byte);
      const std::size_t at = held.find(leaf);
      if (at == std::string::npos || held.find(leaf, at + 1) != std::string::npos) return false;
    }
    return held.starts_with('F') && std::ranges::count(held, 'F') == 1 &&
           std::ranges::count(held, '<') == set_.ranks() && held.find('?') == std::string::npos;
  }

  schedule::ProgramSet set_;
  std::vector<schedule::NodeId> partner_;
  bool in_place_;
  Random& random_;
  bool unbuffered_;  ///< A byte is sent only when the previous one to that peer has arrived.
  std::vector<std::size_t> done_;
  std::vector<bool> complete_;
  std::vector<bool> started_;
  Rank straggler_;  ///< Starts only when the other ranks are blocked.
  std::map<Cell, std::string> memory_;
  std::map<Stream, std::deque<Flying>> streams_;
  std::string problem_;
};

}  // namespace

std::string execute_at_random(const schedule::Schedule& schedule, bool in_place, Random& random) {
  return Execution(schedule, in_place, random).run();
}

}  // namespace gradwire::test
