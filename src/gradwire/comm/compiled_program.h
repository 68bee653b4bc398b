#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "gradwire/schedule/schedule.h"

namespace gradwire {

/// One rank's program with what the executor looks up while it runs. Made once for a schedule and
/// used by every operation with it, whatever its size. Immutable, thread-safe.
struct CompiledProgram {
  /// An arrow from an op to one that comes after it; `flows`: byte by byte (flows_through).
  struct Edge {
    OpIndex op = 0;
    bool flows = false;
  };

  /// What is exchanged with one peer: the k-th entry is message k in that direction.
  struct Exchange {
    Rank peer = -1;
    std::vector<OpIndex> sends;
    std::vector<OpIndex> receives;
  };

  Schedule schedule;
  Program program;
  /// Per op: its index among the messages to or from its peer.
  std::vector<std::uint32_t> message;
  std::vector<Exchange> exchanges;  ///< Ordered by peer.

  std::span<const Edge> before(OpIndex op) const { return span_of(before_, op); }
  std::span<const Edge> behind(OpIndex op) const { return span_of(behind_, op); }

  /// The exchange with `peer`, or null if there is none.
  const Exchange* exchange_with(Rank peer) const;

  static std::shared_ptr<const CompiledProgram> compile(Schedule schedule, Rank rank);

 private:
  struct Edges {
    std::vector<std::uint32_t> first;  ///< Per op, and one past the last.
    std::vector<Edge> edges;
  };
  static std::span<const Edge> span_of(const Edges& edges, OpIndex op) {
    return std::span(edges.edges).subspan(edges.first[op], edges.first[op + 1] - edges.first[op]);
  }
  void number_messages();
  void connect();

  Edges before_;
  Edges behind_;
};

/// Whether an op takes bytes from its peer.
inline bool is_receive(const Op& op) {
  return op.kind == OpKind::recv || op.kind == OpKind::recv_reduce;
}

}  // namespace gradwire
