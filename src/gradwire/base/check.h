#pragma once

namespace gradwire::detail {

[[noreturn]] void check_failed(const char* condition, const char* file, int line);

}  // namespace gradwire::detail

/// Aborts the process if the condition does not hold. Always on. For invariants that only a bug in
/// gradwire can break; faults of a user or a peer are Errors instead.
#define GRADWIRE_CHECK(condition) \
  ((condition) ? (void)0 : ::gradwire::detail::check_failed(#condition, __FILE__, __LINE__))
