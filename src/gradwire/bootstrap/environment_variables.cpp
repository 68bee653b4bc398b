#include "gradwire/bootstrap/environment_variables.h"

#include <charconv>

#include "gradwire/base/refuse.h"

namespace gradwire::bootstrap {

std::optional<std::string> EnvironmentVariables::text(std::string_view name) const {
  std::optional<std::string> value = environment_(name);
  if (value && value->empty()) return std::nullopt;
  return value;
}

std::optional<std::string> EnvironmentVariables::given(std::string_view name) const {
  return name.starts_with("GRADWIRE_") ? text(name) : environment_(name);
}

std::optional<int> EnvironmentVariables::number(std::string_view name, int low, int high,
                                                std::string_view why) const {
  const std::optional<std::string> value = given(name);
  if (!value) return std::nullopt;
  int result = 0;
  const char* end = value->data() + value->size();
  const auto [parsed_to, error] = std::from_chars(value->data(), end, result);
  if (error != std::errc() || parsed_to != end || result < low || result > high) {
    refuse(
        "{}=\"{}\" in the environment: expected a whole number from {} to "
        "{}{}{}",
        name, *value, low, high, why.empty() ? "" : ", ", why);
  }
  return result;
}

std::optional<bool> EnvironmentVariables::on_or_off(std::string_view name) const {
  const std::optional<std::string> value = given(name);
  if (!value) return std::nullopt;
  if (*value == "on" || *value == "off") return *value == "on";
  refuse("{}=\"{}\" in the environment: expected on or off", name, *value);
}

int EnvironmentVariables::required_number(std::string_view name, int low, int high,
                                          std::string_view why, std::string_view remedy) const {
  const std::optional<int> value = number(name, low, high, why);
  if (!value) {
    refuse("{} is not set in the environment: {}", name, remedy);
  }
  return *value;
}

}  // namespace gradwire::bootstrap
