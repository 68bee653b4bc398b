#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "gradwire/base/error.h"
#include "gradwire/comm/job.h"

namespace gradwire {

/// Reads an Environment and is strict about what it finds: every error is an
/// Exception(invalid_argument) that names the variable, its value and what is expected.
class EnvironmentVariables {
 public:
  explicit EnvironmentVariables(const Environment& environment) : environment_(environment) {}

  /// Set at all, be it to nothing.
  bool has(std::string_view name) const { return environment_(name).has_value(); }

  /// The value; nothing if it is not set, or set to nothing.
  std::optional<std::string> text(std::string_view name) const;

  /// The whole number in `name`, which must lie in low .. high; nothing if it is not set. `why`
  /// says in an error where the range comes from, such as "as WORLD_SIZE=4"; may be empty.
  std::optional<int> number(std::string_view name, int low, int high,
                            std::string_view why = {}) const;

  /// Whether `name` is "on", and not "off"; nothing if it is not set.
  std::optional<bool> on_or_off(std::string_view name) const;

  /// number() of a variable that must be there. `remedy` says in an error who usually sets it.
  int required_number(std::string_view name, int low, int high, std::string_view why,
                      std::string_view remedy) const;

 private:
  /// A variable of ours that is set to nothing counts as not set. One of a launcher does not: then
  /// the launcher has failed.
  std::optional<std::string> given(std::string_view name) const;

  const Environment& environment_;
};

}  // namespace gradwire
