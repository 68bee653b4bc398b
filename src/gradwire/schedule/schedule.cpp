#include "gradwire/schedule/schedule.h"

#include <algorithm>
#include <array>
#include <utility>

namespace gradwire::schedule {
namespace {

bool same_memory(const Slice& a, const Slice& b) {
  return (a.buffer == Buffer::scratch) == (b.buffer == Buffer::scratch);
}

bool overlap(const Slice& a, const Slice& b) {
  return a.count > 0 && b.count > 0 && same_memory(a, b) && a.first < b.first + b.count &&
         b.first < a.first + a.count;
}

bool same_place(const Slice& a, const Slice& b) {
  return a.first == b.first && a.count == b.count;
}

}  // namespace

std::string_view name_of(Collective collective) {
  switch (collective) {
    case Collective::all_reduce:
      return "all_reduce";
    case Collective::broadcast:
      return "broadcast";
    case Collective::all_gather:
      return "all_gather";
    case Collective::reduce_scatter:
      return "reduce_scatter";
    case Collective::barrier:
      return "barrier";
    case Collective::point_to_point:
      return "point_to_point";
    case Collective::reduce:
      return "reduce";
    case Collective::gather:
      return "gather";
    case Collective::scatter:
      return "scatter";
    case Collective::all_to_all:
      return "all_to_all";
  }
  return "unknown";
}

bool reduces(Collective collective) {
  return collective == Collective::all_reduce || collective == Collective::reduce_scatter ||
         collective == Collective::reduce;
}

bool has_parts(Collective collective) {
  return collective == Collective::all_gather || collective == Collective::reduce_scatter ||
         collective == Collective::gather || collective == Collective::scatter ||
         collective == Collective::all_to_all;
}

bool flows_through(const Op& earlier, const Op& later) {
  bool any = false;
  for (const Slice& a : {earlier.dst, earlier.src}) {
    for (const Slice& b : {later.dst, later.src}) {
      if (!overlap(a, b)) continue;
      if (!same_place(a, b)) return false;
      any = true;
    }
  }
  return any;
}

OpIndex ProgramBuilder::append(Op op, std::span<const OpIndex> after) {
  op.after = {static_cast<std::uint32_t>(program_.dependencies.size()),
              static_cast<std::uint32_t>(after.size())};
  program_.dependencies.insert(program_.dependencies.end(), after.begin(), after.end());
  program_.ops.push_back(op);
  return static_cast<OpIndex>(program_.ops.size() - 1);
}

OpIndex ProgramBuilder::send(Rank peer, Slice src, std::span<const OpIndex> after) {
  return append({.kind = OpKind::send, .peer = peer, .src = src}, after);
}

OpIndex ProgramBuilder::recv(Rank peer, Slice dst, std::span<const OpIndex> after) {
  return append({.kind = OpKind::recv, .peer = peer, .dst = dst}, after);
}

OpIndex ProgramBuilder::recv_reduce(Rank peer, Slice dst, Slice src, OperandOrder order,
                                    std::span<const OpIndex> after) {
  return append({.kind = OpKind::recv_reduce, .order = order, .peer = peer, .dst = dst, .src = src},
                after);
}

OpIndex ProgramBuilder::copy(Slice dst, Slice src, std::span<const OpIndex> after) {
  return append({.kind = OpKind::copy, .dst = dst, .src = src}, after);
}

OpIndex ProgramBuilder::reduce(Slice dst, Slice src, OperandOrder order,
                               std::span<const OpIndex> after) {
  return append({.kind = OpKind::reduce, .order = order, .dst = dst, .src = src}, after);
}

void ProgramBuilder::postscale(OpIndex op) {
  program_.ops[op].postscale = true;
}

Slice ProgramBuilder::scratch(std::uint32_t mirrored) {
  return scratch(mirrored, 1);
}

Slice ProgramBuilder::scratch(std::uint32_t mirrored, std::uint32_t count) {
  const auto first = static_cast<std::uint32_t>(program_.scratch_mirrors.size());
  for (std::uint32_t i = 0; i < count; ++i) program_.scratch_mirrors.push_back(mirrored + i);
  return {Buffer::scratch, first, count};
}

Program ProgramBuilder::build() && {
  return std::move(program_);
}

}  // namespace gradwire::schedule
