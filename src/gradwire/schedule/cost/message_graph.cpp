#include "gradwire/schedule/cost/message_graph.h"

#include <algorithm>

#include "gradwire/base/check.h"

namespace gradwire::schedule {

MessageGraph::MessageGraph(const ProgramSet& programs, const std::vector<NodeId>& partner) {
  for (Rank rank = 0; rank < programs.ranks(); ++rank)
    add(programs.program(rank), static_cast<Number>(rank));
  for (NodeId node = 0; node < size(); ++node) ops_[node].partner = partner[node];
  connect();
}

MessageGraph::Number MessageGraph::add(const Program& program, Number rank) {
  const Number first = size();
  for (const gradwire::schedule::Op& op : program.ops) {
    const bool message = sends(op) || receives(op);
    ops_.push_back({.kind = op.kind, .rank = rank, .peer = message ? op.peer : -1});
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
  longest_chain_ = count_longest_chain();
}

/// Visits ops in an order in which each follows its dependencies, and a receive its send.
std::uint32_t MessageGraph::count_longest_chain() const {
  const auto is_receive = [&](Number op) {
    return ops_[op].kind == OpKind::recv || ops_[op].kind == OpKind::recv_reduce;
  };
  std::vector<std::uint32_t> hops(ops_.size()), missing(ops_.size());
  std::vector<Number> ready;
  for (Number op = 0; op < size(); ++op) {
    missing[op] = static_cast<std::uint32_t>(predecessors(op).size()) + (is_receive(op) ? 1 : 0);
    if (missing[op] == 0) ready.push_back(op);
  }
  std::size_t visited = 0;
  std::uint32_t longest = 0;
  const auto meet = [&](Number from, Number to, std::uint32_t more) {
    hops[to] = std::max(hops[to], hops[from] + more);
    if (--missing[to] == 0) ready.push_back(to);
  };
  for (; !ready.empty(); ++visited) {
    const Number op = ready.back();
    ready.pop_back();
    longest = std::max(longest, hops[op]);
    for (const Arrow& arrow : successors(op)) meet(op, arrow.to, 0);
    if (ops_[op].kind == OpKind::send) meet(op, ops_[op].partner, 1);
  }
  GRADWIRE_CHECK(visited == ops_.size());
  return longest;
}

}  // namespace gradwire::schedule
