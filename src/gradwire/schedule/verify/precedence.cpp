#include "gradwire/schedule/verify/precedence.h"

#include <algorithm>

namespace gradwire::proof {
namespace {

void unite(std::span<std::uint64_t> into, std::span<const std::uint64_t> from) {
  for (std::size_t i = 0; i < into.size(); ++i) into[i] |= from[i];
}

void insert(std::span<std::uint64_t> set, OpIndex op) {
  set[op / 64] |= std::uint64_t{1} << (op % 64);
}

}  // namespace

Precedence::Precedence(const ProgramSet& programs, const WaitGraph& graph,
                       std::span<const NodeId> order, Rank rank)
    : programs_(programs),
      rank_(rank),
      words_((programs.program(rank).ops.size() + 63) / 64),
      bits_(2 * std::size_t{programs.size()} * words_) {
  for (NodeId node : order) {
    for (const Arrow& arrow : graph.predecessors(node)) follow(arrow, node);
  }
}

void Precedence::follow(const Arrow& arrow, NodeId node) {
  const OpRef from = programs_.ref(arrow.from);
  unite(set(node, 0), set(arrow.from, 0));
  unite(set(node, 1), set(arrow.from, arrow.whole ? 0 : 1));
  if (from.rank != rank_) return;
  insert(set(node, 0), from.op);
  if (arrow.whole) insert(set(node, 1), from.op);
}

bool Precedence::any(NodeId later) const {
  const auto words = std::span(bits_).subspan(2 * std::size_t{later} * words_, words_);
  return std::ranges::any_of(words, [](std::uint64_t word) { return word != 0; });
}

}  // namespace gradwire::proof
