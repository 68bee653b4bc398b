#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "gradwire/base/error.h"
#include "gradwire/schedule/schedule.h"

/// Proves a schedule right before a byte of it is sent. What holds for the schedule then holds for
/// every element count, segment size, timing of the network and order in which ranks call:
///
///   well formed   slices lie in their buffers, lengths agree, ops come after earlier ones only
///   matched       the k-th send of a to b meets a k-th receive of b from a, of the same length
///   no deadlock   dependencies, messages, and the order of each stream together have no cycle, so
///                 that everything finishes even if no byte is ever buffered
///   no race       two ops that touch the same memory, one of them writing, are ordered, byte by
///                 byte (proof/precedence.h), whether input and output are the same memory or not
///   no waiting    a receive never waits: what it comes after has happened, byte by byte, before
///                 the message can have been sent
///   right         computed with expressions instead of numbers, every output holds what
///                 CollectiveSpec asks for: each contribution exactly once, `finish` once and at
///                 the end, and on all ranks the same expression, operand for operand, so the same
///                 bits
namespace gradwire {

/// Which of those does not hold.
enum class Fault : std::uint8_t {
  malformed,
  unmatched,
  deadlock,
  race,
  receive_waits,
  undefined_read,  ///< An op reads memory that nothing has written.
  wrong_result,
};

/// "malformed", "receive waits", ...
std::string_view name_of(Fault fault);

struct Violation {
  Fault fault = Fault::malformed;
  std::string message;  ///< Names the schedule, rank, op and what is wrong with it.
};

/// The first thing wrong with a schedule, looked for in the order above; nothing if it is right.
/// 64 ranks that all talk to all (20,000 ops) take some tens of milliseconds. Pure, thread-safe.
std::optional<Violation> find_fault(const Schedule& schedule);

/// The same as a status: invalid_argument with the violation's message.
Status verify(const Schedule& schedule);

}  // namespace gradwire
