#include "gradwire/recipe/json_object.h"

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "gradwire/base/error.h"
#include "gradwire/base/suggest.h"

namespace gradwire::recipe {
namespace {

const nlohmann::json kEmptyObject = nlohmann::json::object();

[[noreturn]] void invalid(const std::string& message) {
  throw Exception(ErrorKind::invalid_argument, message);
}

/// Converts a value to text. Command-line strings may not be UTF-8, on which plain dump() throws.
std::string shown(const nlohmann::json& value) {
  return value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

JsonObject::JsonObject(const nlohmann::json& value, std::string path)
    : value_(value), path_(std::move(path)) {
  if (value_.is_object()) return;
  invalid(fmt::format("{} is {}; it must be an object", path_.empty() ? "the configuration" : path_,
                      shown(value_)));
}

std::string JsonObject::path_of(std::string_view key) const {
  return path_.empty() ? std::string(key) : fmt::format("{}.{}", path_, key);
}

void JsonObject::refuse(std::string_view key, const nlohmann::json& value,
                        const std::string& expected) const {
  invalid(fmt::format("{} is {}; it must be {}", path_of(key), shown(value), expected));
}

const nlohmann::json* JsonObject::find(std::string_view key) {
  known_.emplace_back(key);
  const auto found = value_.find(key);
  return found == value_.end() ? nullptr : &*found;
}

bool JsonObject::has(std::string_view key) const {
  return value_.contains(key);
}

bool JsonObject::empty() const {
  return value_.empty();
}

double JsonObject::number(std::string_view key, double fallback, double min, double max) {
  const auto* value = find(key);
  if (value == nullptr) return fallback;
  if (!value->is_number() || value->get<double>() < min || value->get<double>() > max) {
    refuse(key, *value, fmt::format("a number from {} to {}", min, max));
  }
  return value->get<double>();
}

std::int64_t JsonObject::integer(std::string_view key, std::int64_t fallback, std::int64_t min,
                                 std::int64_t max) {
  const auto* value = find(key);
  if (value == nullptr) return fallback;
  const bool fits = value->is_number_integer() &&
                    (!value->is_number_unsigned() || value->get<std::uint64_t>() <= INT64_MAX);
  if (fits && value->get<std::int64_t>() >= min && value->get<std::int64_t>() <= max) {
    return value->get<std::int64_t>();
  }
  const bool bounded = max != std::numeric_limits<std::int64_t>::max();
  refuse(key, *value,
         bounded ? fmt::format("a whole number from {} to {}", min, max)
                 : fmt::format("a whole number, {} or more", min));
}

bool JsonObject::flag(std::string_view key, bool fallback) {
  const auto* value = find(key);
  if (value == nullptr) return fallback;
  if (!value->is_boolean()) refuse(key, *value, "true or false");
  return value->get<bool>();
}

std::string JsonObject::text(std::string_view key, std::string fallback) {
  const auto* value = find(key);
  if (value == nullptr) return fallback;
  if (!value->is_string()) refuse(key, *value, "a string");
  return value->get<std::string>();
}

std::string JsonObject::choice(std::string_view key, std::string fallback,
                               const std::vector<std::string_view>& choices) {
  auto chosen = text(key, std::move(fallback));
  if (std::ranges::find(choices, chosen) == choices.end()) {
    invalid(unknown_name(path_of(key), chosen, choices));
  }
  return chosen;
}

JsonObject JsonObject::object(std::string_view key) {
  const auto* value = find(key);
  return JsonObject(value == nullptr ? kEmptyObject : *value, path_of(key));
}

void JsonObject::refuse_unknown() const {
  const std::vector<std::string_view> known(known_.begin(), known_.end());
  for (const auto& item : value_.items()) {
    if (std::ranges::find(known, item.key()) != known.end()) continue;
    invalid(
        unknown_name(path_.empty() ? "key" : fmt::format("key in {}", path_), item.key(), known));
  }
}

void apply_setting(nlohmann::json& config, std::string_view setting) {
  const auto equals = setting.find('=');
  if (equals == std::string_view::npos || equals == 0) {
    invalid(fmt::format("setting '{}' is not of the form key.sub=value", setting));
  }
  const auto value = nlohmann::json::parse(setting.substr(equals + 1), nullptr, false);
  auto* place = &config;
  for (auto keys = setting.substr(0, equals); !keys.empty();) {
    if (!place->is_object()) {
      invalid(fmt::format("setting '{}': found {} where an object is expected", setting,
                          shown(*place)));
    }
    const auto dot = std::min(keys.find('.'), keys.size());
    place = &(*place)[std::string(keys.substr(0, dot))];
    if (place->is_null() && dot < keys.size()) *place = nlohmann::json::object();
    keys.remove_prefix(std::min(dot + 1, keys.size()));
  }
  *place = value.is_discarded() ? nlohmann::json(setting.substr(equals + 1)) : value;
}

}  // namespace gradwire::recipe
