#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>

#include "gradwire/bootstrap/job.h"

namespace gradwire::test {

/// An environment for tests.
using Variables = std::map<std::string, std::string>;

inline bootstrap::Environment environment_of(Variables variables) {
  return [variables = std::move(variables)](std::string_view name) -> std::optional<std::string> {
    const auto found = variables.find(std::string(name));
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  };
}

inline Variables with(Variables variables, const Variables& changes) {
  for (const auto& [name, value] : changes) variables[name] = value;
  return variables;
}

inline Variables without(Variables variables, const std::string& name) {
  variables.erase(name);
  return variables;
}

inline bootstrap::Job job_of(const Variables& variables) {
  return bootstrap::Job::from_environment(environment_of(variables));
}

}  // namespace gradwire::test
