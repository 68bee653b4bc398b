#include "gradwire/schedule/cost/message_graph.h"

#include <algorithm>

namespace gradwire {

MessageGraph::MessageGraph(const ProgramSet& programs, const std::vector<NodeId>& partner) {
  for (Rank rank = 0; rank < programs.ranks(); ++rank)
    add(programs.program(rank), static_cast<Number>(rank));
  for (NodeId node = 0; node < size(); ++node) ops_[node].partner = partner[node];
  connect();
}

MessageGraph::Number MessageGraph::add(const Program& program, Number rank) {
  const Number first = size();
  for (const gradwire::Op& op : program.ops) {
    ops_.push_back({.kind = op.kind, .rank = rank});
    for (const OpIndex earlier : program.after(op))
      predecessors_.push_back({first + earlier, !flows_through(program.ops[earlier], op)});
    predecessors_first_.push_back(static_cast<Number>(predecessors_.size()));
  }
  ranks_ = std::max(ranks_, rank + 1);
  return first;
}

void MessageGraph::match(Number send, Number receive) {
  ops_[send].partner = receive;
  ops_[receive].partner = send;
}

void MessageGraph::connect() {
  successors_first_.assign(ops_.size() + 1, 0);
  for (const Arrow& arrow : predecessors_) ++successors_first_[arrow.to + 1];
  for (std::size_t i = 1; i < successors_first_.size(); ++i)
    successors_first_[i] += successors_first_[i - 1];
  successors_.resize(predecessors_.size());
  std::vector<Number> next(successors_first_.begin(), successors_first_.end() - 1);
  for (Number later = 0; later < size(); ++later) {
    for (const Arrow& arrow : predecessors(later))
      successors_[next[arrow.to]++] = {later, arrow.whole};
  }
}

}  // namespace gradwire
