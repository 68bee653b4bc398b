#include "gradwire/schedule/verify/hazards.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "gradwire/schedule/describe.h"
#include "gradwire/schedule/verify/expression.h"

namespace gradwire::schedule::proof {
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

namespace {

struct Access {
  OpIndex op = 0;
  Slice place;
  bool writes = false;
};

/// The ops that access each chunk of a rank's memory.
class AccessTable {
 public:
  AccessTable(const ProgramSet& programs, Rank rank, Aliasing aliasing) {
    const Program& program = programs.program(rank);
    for (std::size_t b = 0; b < cells_.size(); ++b) {
      cells_[b].resize(chunks_of(programs.schedule(), rank, program, static_cast<Buffer>(b)));
    }
    for (OpIndex i = 0; i < program.ops.size(); ++i) {
      const Op& op = program.ops[i];
      const bool writes = !stays_in_place(programs.schedule(), rank, op, aliasing);
      add({i, place_of(programs.schedule(), rank, op.src, aliasing), false});
      add({i, place_of(programs.schedule(), rank, op.dst, aliasing), writes});
    }
  }

  /// Calls `visit` with each pair of accesses to a chunk of which at least one writes. Returns
  /// true, and stops, once `visit` returns true.
  template <class Visit>
  bool any_conflict(Visit visit) const {
    for (const auto& buffer : cells_) {
      for (const std::vector<Access>& cell : buffer) {
        for (std::size_t j = 1; j < cell.size(); ++j) {
          for (std::size_t i = 0; i < j; ++i) {
            if ((cell[i].writes || cell[j].writes) && visit(cell[i], cell[j])) return true;
          }
        }
      }
    }
    return false;
  }

 private:
  void add(const Access& access) {
    auto& buffer = cells_[static_cast<std::size_t>(access.place.buffer)];
    for (std::uint32_t i = 0; i < access.place.count; ++i) {
      buffer[access.place.first + i].push_back(access);
    }
  }

  std::array<std::vector<std::vector<Access>>, 3> cells_;  ///< By buffer and chunk.
};

class RaceCheck {
 public:
  RaceCheck(const ProgramSet& programs, const Precedence& precedence, Rank rank)
      : programs_(programs), precedence_(precedence), rank_(rank) {}

  MaybeViolation run(Aliasing aliasing) const {
    MaybeViolation race;
    AccessTable(programs_, rank_, aliasing).any_conflict([&](const Access& a, const Access& b) {
      if (in_order(a, b)) return false;
      race = report(a, b, aliasing);
      return true;
    });
    return race;
  }

 private:
  bool comes_before(const Access& a, const Access& b) const {
    const NodeId later = programs_.node(rank_, b.op);
    return a.place == b.place ? precedence_.bytewise(a.op, later) : precedence_.whole(a.op, later);
  }

  bool in_order(const Access& a, const Access& b) const {
    // An op with equal source and destination reads each byte before it writes it.
    if (a.op == b.op) return a.place == b.place;
    return comes_before(a, b) || comes_before(b, a);
  }

  Violation report(const Access& a, const Access& b, Aliasing aliasing) const {
    const char* when =
        aliasing == Aliasing::in_place ? ", if output and input are the same memory" : "";
    return make_violation(
        programs_, programs_.node(rank_, b.op), Fault::race,
        fmt::format("it and op {} ({}) access {} and {} without being ordered{}", a.op,
                    gradwire::schedule::describe(programs_.program(rank_).ops[a.op]),
                    gradwire::schedule::describe(b.place), gradwire::schedule::describe(a.place),
                    when));
  }

  const ProgramSet& programs_;
  const Precedence& precedence_;
  Rank rank_;
};

}  // namespace

MaybeViolation check_races(const ProgramSet& programs, const Precedence& precedence, Rank rank) {
  const RaceCheck check(programs, precedence, rank);
  for (Aliasing aliasing : aliasings(programs.schedule().spec.collective)) {
    if (MaybeViolation race = check.run(aliasing)) return race;
  }
  return std::nullopt;
}

MaybeViolation check_receives(const ProgramSet& programs, const std::vector<NodeId>& partner,
                              const Precedence& precedence, Rank rank) {
  const Program& program = programs.program(rank);
  for (OpIndex i = 0; i < program.ops.size(); ++i) {
    const Op& op = program.ops[i];
    if (!receives(op)) continue;
    const NodeId node = programs.node(rank, i);
    for (OpIndex earlier : program.after(op)) {
      const bool happened = flows_through(program.ops[earlier], op)
                                ? precedence.bytewise(earlier, partner[node])
                                : precedence.whole(earlier, partner[node]);
      if (happened) continue;
      return make_violation(
          programs, node, Fault::receive_waits,
          fmt::format("it waits for op {} ({}), which may be incomplete when the "
                      "message arrives; receive into scratch instead",
                      earlier, gradwire::schedule::describe(program.ops[earlier])));
    }
  }
  return std::nullopt;
}

}  // namespace gradwire::schedule::proof
