#pragma once

namespace gradwire::detail {

[[noreturn]] void check_failed(const char* condition, const char* file, int line);

}  // namespace gradwire::detail

/// For our own bugs only: states an invariant, always on, ends the process when it does not hold.
/// What a user or a peer can cause is an Error instead.
#define GRADWIRE_CHECK(condition) \
  ((condition) ? (void)0 : ::gradwire::detail::check_failed(#condition, __FILE__, __LINE__))
