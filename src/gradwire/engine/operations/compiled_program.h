#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "gradwire/schedule/schedule.h"

namespace gradwire::engine {

/// One rank's program with the lookup tables that the executor needs. Compiled once per schedule
/// and shared by all operations that use it, of any size. Immutable, thread-safe.
///
/// A schedule numbers the ranks of its group; `program` and `exchanges` have the numbers of these
/// ranks in the engine.
struct CompiledProgram {
  /// A dependency between an op and a later one. `flows`: the ops follow each other byte by byte
  /// (flows_through).
  struct Edge {
    schedule::OpIndex op = 0;
    bool flows = false;
  };

  /// Messages exchanged with one peer. Entry k is message k in that direction.
  struct Exchange {
    Rank peer = -1;
    Rank rank_in_group = -1;  ///< The peer's number in the schedule.
    std::vector<schedule::OpIndex> sends;
    std::vector<schedule::OpIndex> receives;
  };

  schedule::Schedule schedule;
  schedule::Program program;
  /// Per op: its index among the messages sent to (or received from) its peer.
  std::vector<std::uint32_t> message;
  std::vector<Exchange> exchanges;  ///< Ordered by peer.

  std::span<const Edge> dependencies(schedule::OpIndex op) const {
    return span_of(dependencies_, op);
  }
  std::span<const Edge> dependents(schedule::OpIndex op) const { return span_of(dependents_, op); }

  /// Returns the exchange with `peer`, or null if there is none.
  const Exchange* exchange_with(Rank peer) const;

  /// `rank`: in the schedule. `members`: the engine's rank of each of the schedule's ranks; empty:
  /// the same.
  static std::shared_ptr<const CompiledProgram> compile(schedule::Schedule schedule, Rank rank,
                                                        std::span<const Rank> members = {});

 private:
  struct Edges {
    std::vector<std::uint32_t> first;  ///< Per op, and one past the last.
    std::vector<Edge> edges;
  };
  static std::span<const Edge> span_of(const Edges& edges, schedule::OpIndex op) {
    return std::span(edges.edges).subspan(edges.first[op], edges.first[op + 1] - edges.first[op]);
  }
  void number_messages(std::span<const Rank> members);
  void connect();

  Edges dependencies_;
  Edges dependents_;
};

/// Returns true if the op receives bytes from its peer.
inline bool is_receive(const schedule::Op& op) {
  return op.kind == schedule::OpKind::recv || op.kind == schedule::OpKind::recv_reduce;
}

}  // namespace gradwire::engine
