#pragma once

namespace gradwire::fuzz {

/// Resets the coverage of the last input.
void begin_input();

/// Returns true if the input has reached code that no earlier input reached, or reached it more
/// often. Requires -fsanitize-coverage=trace-pc; otherwise always false.
bool reached_anything_new();

/// Forgets what earlier inputs have reached.
void forget_coverage();

}  // namespace gradwire::fuzz
