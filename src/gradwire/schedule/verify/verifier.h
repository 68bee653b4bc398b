#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "gradwire/base/error.h"
#include "gradwire/schedule/program_set.h"
#include "gradwire/schedule/schedule.h"

/// Proves a schedule correct before it is executed. The proof holds for every element count,
/// segment size, network timing and order in which ranks call:
///
///   well formed   slices lie in their buffers, lengths agree, ops depend on earlier ops only
///   matched       the k-th send of a to b matches a k-th receive of b from a, of the same length
///   no deadlock   dependencies, messages and the order within each stream have no cycle, so that
///                 all ops complete even if no byte is ever buffered
///   no race       two ops that access the same memory, at least one of them writing, are ordered
///                 byte by byte (verify/hazards.h), whether or not input and output are the same
///                 memory
///   no waiting    a receive never waits: the ops that it depends on have happened, byte by byte,
///                 before its message can have been sent
///   right         evaluated with expressions instead of numbers, every output is as
///                 CollectiveSpec requires: each contribution once, postscale once and last,
///                 and the same expression on all ranks, operand for operand, hence the same bits
namespace gradwire::schedule {

/// The property that does not hold.
enum class Fault : std::uint8_t {
  malformed,
  unmatched,
  deadlock,
  race,
  receive_waits,
  undefined_read,  ///< An op reads uninitialized memory.
  wrong_result,
};

/// "malformed", "receive waits", ...
std::string_view name_of(Fault fault);

struct Violation {
  Fault fault = Fault::malformed;
  std::string message;  ///< Names the schedule, the rank, the op and what is wrong.
};

/// Returns the first fault of a schedule, in the order above; nullopt if it is correct. Takes some
/// tens of milliseconds for 64 ranks that all exchange messages with each other (20,000 ops). Pure,
/// thread-safe.
std::optional<Violation> find_fault(const Schedule& schedule);

/// Checks as find_fault() does. Fails with invalid_argument and the violation's message.
Status verify(const Schedule& schedule);

}  // namespace gradwire::schedule

/// Construction of the verifier's reports.
namespace gradwire::schedule::proof {

using MaybeViolation = std::optional<Violation>;

/// "ring all_reduce of 4 ranks: <what>".
Violation make_violation(const Schedule& schedule, Fault fault, const std::string& what);

/// "ring all_reduce of 4 ranks: rank 2, op 5 (send output[1] -> rank 3): <what>".
Violation make_violation(const ProgramSet& programs, NodeId node, Fault fault,
                         const std::string& what);

/// "rank 2, op 5 (send output[1] -> rank 3)".
std::string describe(const ProgramSet& programs, NodeId node);

}  // namespace gradwire::schedule::proof
