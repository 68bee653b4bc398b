#include "gradwire/schedule/verify/expression.h"

#include <algorithm>

#include <fmt/format.h>

#include "gradwire/base/check.h"

namespace gradwire::schedule::proof {

std::vector<Aliasing> aliasings(Collective collective) {
  if (collective == Collective::all_reduce || collective == Collective::all_gather ||
      collective == Collective::reduce) {
    return {Aliasing::separate, Aliasing::in_place};
  }
  return {Aliasing::separate};
}

Slice place_of(const Schedule& schedule, Rank rank, const Slice& slice, Aliasing aliasing) {
  if (aliasing == Aliasing::separate || slice.buffer != Buffer::input) return slice;
  const CollectiveSpec& spec = schedule.spec;
  if (spec.collective == Collective::reduce && rank != spec.root) return slice;
  const bool gathers = spec.collective == Collective::all_gather;
  const std::uint32_t shift = gathers ? static_cast<std::uint32_t>(rank) : 0;
  return {Buffer::output, slice.first + shift, slice.count};
}

bool stays_in_place(const Schedule& schedule, Rank rank, const Op& op, Aliasing aliasing) {
  return op.kind == OpKind::copy && !op.postscale &&
         place_of(schedule, rank, op.src, aliasing) == place_of(schedule, rank, op.dst, aliasing);
}

ExpressionId ExpressionPool::leaf(Rank rank, std::uint32_t chunk) {
  return intern(ExpressionKind::leaf, static_cast<std::uint32_t>(rank), chunk);
}

ExpressionId ExpressionPool::sum(ExpressionId left, ExpressionId right) {
  return intern(ExpressionKind::sum, left, right);
}

ExpressionId ExpressionPool::postscaled(ExpressionId operand) {
  return intern(ExpressionKind::postscaled, operand, 0);
}

ExpressionId ExpressionPool::intern(ExpressionKind kind, std::uint32_t a, std::uint32_t b) {
  GRADWIRE_CHECK(a < 1u << 31 && b < 1u << 31);
  const std::uint64_t key =
      static_cast<std::uint64_t>(kind) << 62 | static_cast<std::uint64_t>(a) << 31 | b;
  const auto [known, is_new] = known_.try_emplace(key, static_cast<ExpressionId>(nodes_.size()));
  if (is_new) nodes_.push_back({kind, a, b});
  return known->second;
}

std::string ExpressionPool::to_string(ExpressionId id, std::size_t limit) const {
  std::string text;
  write(id, limit, text);
  return text;
}

void ExpressionPool::write(ExpressionId id, std::size_t limit, std::string& text) const {
  // Each level writes text before it recurses, so the limit also bounds the depth.
  if (text.size() > limit) {
    if (!text.ends_with("...")) text += "...";
    return;
  }
  const Expression& node = nodes_[id];
  switch (node.kind) {
    case ExpressionKind::undefined:
      text += "undefined";
      return;
    case ExpressionKind::leaf:
      text += fmt::format("r{}[{}]", node.a, node.b);
      return;
    case ExpressionKind::postscaled:
      text += "finish ";
      write(node.a, limit, text);
      return;
    case ExpressionKind::sum:
      text += "(";
      write(node.a, limit, text);
      text += " + ";
      write(node.b, limit, text);
      text += ")";
      return;
  }
}

std::string why_not_complete(const ExpressionPool& pool, ExpressionId id, std::uint32_t chunk,
                             int ranks) {
  if (pool[id].kind != ExpressionKind::postscaled) return "finish was never applied";
  std::vector<bool> contributed(static_cast<std::size_t>(ranks));
  // Ends after at most `ranks` leaves: one more would repeat a rank.
  for (std::vector<ExpressionId> left{pool[id].a}; !left.empty();) {
    const Expression node = pool[left.back()];
    left.pop_back();
    switch (node.kind) {
      case ExpressionKind::undefined:
        return "it contains uninitialized memory";
      case ExpressionKind::postscaled:
        return "finish was applied before it was complete";
      case ExpressionKind::sum:
        left.insert(left.end(), {node.b, node.a});
        continue;
      case ExpressionKind::leaf:
        break;
    }
    if (node.b != chunk) return fmt::format("it contains chunk {} of rank {}", node.b, node.a);
    if (contributed[node.a]) return fmt::format("it contains rank {} twice", node.a);
    contributed[node.a] = true;
  }
  const auto missing = std::ranges::find(contributed, false);
  if (missing == contributed.end()) return "";
  return fmt::format("rank {} is missing", missing - contributed.begin());
}

}  // namespace gradwire::schedule::proof
