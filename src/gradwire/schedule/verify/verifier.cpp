#include "gradwire/schedule/verify/verifier.h"

#include <vector>

#include <fmt/format.h>

#include "gradwire/schedule/describe.h"
#include "gradwire/schedule/verify/form.h"
#include "gradwire/schedule/verify/hazards.h"
#include "gradwire/schedule/verify/symbolic.h"
#include "gradwire/schedule/verify/wait_graph.h"

namespace gradwire::schedule::proof {

Violation make_violation(const Schedule& schedule, Fault fault, const std::string& what) {
  return {fault, fmt::format("{}: {}", gradwire::schedule::describe(schedule), what)};
}

Violation make_violation(const ProgramSet& programs, NodeId node, Fault fault,
                         const std::string& what) {
  return make_violation(programs.schedule(), fault,
                        fmt::format("{}: {}", describe(programs, node), what));
}

std::string describe(const ProgramSet& programs, NodeId node) {
  const OpRef ref = programs.ref(node);
  return fmt::format("rank {}, op {} ({})", ref.rank, ref.op,
                     gradwire::schedule::describe(programs.op(node)));
}

}  // namespace gradwire::schedule::proof

namespace gradwire::schedule {
namespace {

using proof::MaybeViolation;

Violation report_cycle(const ProgramSet& programs, const std::vector<NodeId>& cycle) {
  std::string text = "dependency cycle: ";
  for (NodeId node : cycle) text += proof::describe(programs, node) + " waits for ";
  return proof::make_violation(programs.schedule(), Fault::deadlock,
                               text + proof::describe(programs, cycle.front()));
}

/// Checks that `rank` precedes every other rank: each of those has an op that comes after one of
/// `rank`'s. A barrier is correct if this holds for all ranks.
MaybeViolation check_heard(const ProgramSet& programs, const proof::Precedence& from, Rank rank) {
  for (Rank other = 0; other < programs.ranks(); ++other) {
    bool heard = other == rank;
    for (OpIndex op = 0; op < programs.program(other).ops.size() && !heard; ++op) {
      heard = from.any(programs.node(other, op));
    }
    if (heard) continue;
    return proof::make_violation(programs.schedule(), Fault::wrong_result,
                                 fmt::format("rank {} never hears from rank {}", other, rank));
  }
  return std::nullopt;
}

/// Checks how one rank's ops are ordered with each other and with other ranks' ops.
MaybeViolation check_order(const ProgramSet& programs, const std::vector<NodeId>& partner,
                           const proof::Precedence& precedence, Rank rank) {
  MaybeViolation violation = proof::check_races(programs, precedence, rank);
  if (!violation) violation = proof::check_receives(programs, partner, precedence, rank);
  if (!violation && programs.schedule().spec.collective == Collective::barrier) {
    violation = check_heard(programs, precedence, rank);
  }
  return violation;
}

}  // namespace

std::string_view name_of(Fault fault) {
  switch (fault) {
    case Fault::malformed:
      return "malformed";
    case Fault::unmatched:
      return "unmatched";
    case Fault::deadlock:
      return "deadlock";
    case Fault::race:
      return "race";
    case Fault::receive_waits:
      return "receive waits";
    case Fault::undefined_read:
      return "undefined read";
    case Fault::wrong_result:
      return "wrong result";
  }
  return "unknown";
}

std::optional<Violation> find_fault(const Schedule& schedule) {
  if (MaybeViolation violation = proof::check_spec(schedule)) return violation;
  const ProgramSet programs(schedule);
  if (MaybeViolation violation = proof::check_ops(programs)) return violation;
  const std::vector<NodeId> partner = match_messages(programs);
  if (MaybeViolation violation = proof::check_messages(programs, partner)) return violation;
  const proof::WaitGraph graph(programs, partner);
  const auto [order, cycle] = proof::order_ops(graph, proof::previous_in_stream(programs));
  if (!cycle.empty()) return report_cycle(programs, cycle);
  for (Rank rank = 0; rank < programs.ranks(); ++rank) {
    const proof::Precedence precedence(programs, graph, order, rank);
    if (MaybeViolation violation = check_order(programs, partner, precedence, rank))
      return violation;
  }
  return proof::check_results(programs, partner, order);
}

Status verify(const Schedule& schedule) {
  if (auto violation = find_fault(schedule)) {
    return failure(ErrorKind::invalid_argument, violation->message);
  }
  return {};
}

}  // namespace gradwire::schedule
