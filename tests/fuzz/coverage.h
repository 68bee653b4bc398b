#pragma once

namespace gradwire::fuzz {

/// Forgets what code the last input has reached.
void begin_input();

/// Returns true if the input has reached code that none before it had, or more often: with
/// -fsanitize-coverage=trace-pc. Otherwise always false.
bool reached_anything_new();

}  // namespace gradwire::fuzz
