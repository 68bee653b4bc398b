#include "gradwire/schedule/verify/violation.h"

#include <fmt/format.h>

#include "gradwire/schedule/describe.h"

namespace gradwire::proof {

Violation make_violation(const Schedule& schedule, Fault fault, const std::string& what) {
  return {fault, fmt::format("{}: {}", gradwire::describe(schedule), what)};
}

Violation make_violation(const ProgramSet& programs, NodeId node, Fault fault,
                         const std::string& what) {
  return make_violation(programs.schedule(), fault,
                        fmt::format("{}: {}", describe(programs, node), what));
}

std::string describe(const ProgramSet& programs, NodeId node) {
  const OpRef ref = programs.ref(node);
  return fmt::format("rank {}, op {} ({})", ref.rank, ref.op,
                     gradwire::describe(programs.op(node)));
}

}  // namespace gradwire::proof
