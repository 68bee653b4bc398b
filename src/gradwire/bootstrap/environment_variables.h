#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "gradwire/base/error.h"
#include "gradwire/bootstrap/job.h"

namespace gradwire::bootstrap {

/// Reads and validates variables of an Environment. Every error is an Exception(invalid_argument)
/// that names the variable, its value and the value expected.
class EnvironmentVariables {
 public:
  explicit EnvironmentVariables(const Environment& environment) : environment_(environment) {}

  /// Returns true if the variable is set, even to an empty string.
  bool has(std::string_view name) const { return environment_(name).has_value(); }

  /// Returns the value; nullopt if the variable is unset or empty.
  std::optional<std::string> text(std::string_view name) const;

  /// Returns the integer in `name`, which must be within low .. high; nullopt if it is not set.
  /// `why` states in an error where the range comes from, such as "as WORLD_SIZE=4"; may be empty.
  std::optional<int> number(std::string_view name, int low, int high,
                            std::string_view why = {}) const;

  /// Returns true for "on", false for "off"; nullopt if the variable is not set. Throws on other
  /// values.
  std::optional<bool> on_or_off(std::string_view name) const;

  /// number() of a required variable. `remedy` states in an error how it is usually set.
  int required_number(std::string_view name, int low, int high, std::string_view why,
                      std::string_view remedy) const;

 private:
  /// An empty GRADWIRE_* variable counts as unset. An empty variable of a launcher does not: it
  /// means that the launcher has failed.
  std::optional<std::string> given(std::string_view name) const;

  const Environment& environment_;
};

}  // namespace gradwire::bootstrap
