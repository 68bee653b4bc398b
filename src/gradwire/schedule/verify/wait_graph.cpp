#include "gradwire/schedule/verify/wait_graph.h"

#include <algorithm>
#include <map>
#include <utility>

namespace gradwire::schedule::proof {
namespace {

/// Depth-first search along dependencies. Not recursive, since chains of ops are long.
class Search {
 public:
  Search(const WaitGraph& graph, const std::vector<NodeId>& previous)
      : graph_(graph), previous_(previous), states_(graph.size(), State::unseen) {}

  Ordering run() {
    for (NodeId node = 0; node < graph_.size() && found_.cycle.empty(); ++node) {
      if (states_[node] == State::unseen) visit(node);
    }
    return std::move(found_);
  }

 private:
  enum class State : std::uint8_t { unseen, open, ordered };
  struct Step {
    NodeId node;
    std::uint32_t next;  ///< Index of the next dependency to visit.
  };

  /// The i-th dependency of `node`; kNoNode beyond the last. The previous send of the stream comes
  /// last.
  NodeId waited_for(NodeId node, std::uint32_t i) const {
    const auto arrows = graph_.predecessors(node);
    if (i < arrows.size()) return arrows[i].from;
    return i == arrows.size() ? previous_[node] : kNoNode;
  }

  void open(NodeId node) {
    states_[node] = State::open;
    path_.push_back({node, 0});
  }

  void visit(NodeId start) {
    open(start);
    while (!path_.empty()) {
      const NodeId node = path_.back().node;
      const NodeId next = waited_for(node, path_.back().next++);
      if (next == kNoNode) {
        states_[node] = State::ordered;
        found_.order.push_back(node);
        path_.pop_back();
      } else if (states_[next] == State::unseen) {
        open(next);
      } else if (states_[next] == State::open) {
        keep_cycle(next);
        return;
      }
    }
  }

  void keep_cycle(NodeId start) {
    const auto first = std::ranges::find(path_, start, &Step::node);
    for (auto step = first; step != path_.end(); ++step) found_.cycle.push_back(step->node);
  }

  const WaitGraph& graph_;
  const std::vector<NodeId>& previous_;
  std::vector<State> states_;
  std::vector<Step> path_;
  Ordering found_;
};

}  // namespace

WaitGraph::WaitGraph(const ProgramSet& programs, const std::vector<NodeId>& partner) {
  first_.push_back(0);
  for (NodeId node = 0; node < programs.size(); ++node) {
    const OpRef ref = programs.ref(node);
    const Program& program = programs.program(ref.rank);
    const Op& op = program.ops[ref.op];
    for (OpIndex earlier : program.after(op)) {
      arrows_.push_back(
          {programs.node(ref.rank, earlier), !flows_through(program.ops[earlier], op)});
    }
    if (receives(op)) arrows_.push_back({partner[node], false});
    first_.push_back(static_cast<std::uint32_t>(arrows_.size()));
  }
}

std::vector<NodeId> previous_in_stream(const ProgramSet& programs) {
  std::vector<NodeId> previous(programs.size(), kNoNode);
  for (Rank rank = 0; rank < programs.ranks(); ++rank) {
    std::map<Rank, NodeId> last_to;
    for (OpIndex op = 0; op < programs.program(rank).ops.size(); ++op) {
      const NodeId node = programs.node(rank, op);
      if (!sends(programs.op(node))) continue;
      const auto [last, is_first] = last_to.try_emplace(programs.op(node).peer, node);
      if (!is_first) previous[node] = std::exchange(last->second, node);
    }
  }
  return previous;
}

Ordering order_ops(const WaitGraph& graph, const std::vector<NodeId>& previous) {
  return Search(graph, previous).run();
}

}  // namespace gradwire::schedule::proof
