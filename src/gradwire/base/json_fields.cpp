#include "gradwire/base/json_fields.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "gradwire/base/json_document.h"
#include "gradwire/base/refuse.h"
#include "gradwire/base/suggest.h"

namespace gradwire {
namespace {

const nlohmann::ordered_json kEmptyObject = nlohmann::ordered_json::object();

/// Long values are truncated.
std::string shown(const nlohmann::ordered_json& value) {
  constexpr std::size_t kMaxShown = 60;
  std::string text = value.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  if (text.size() > kMaxShown) text.replace(kMaxShown, std::string::npos, "...");
  return text;
}

/// Returns a whole number that an std::int64_t holds, also one written as 5e8.
std::optional<std::int64_t> whole_number(const nlohmann::ordered_json& value) {
  constexpr double kLimit = 9223372036854775808.0;  // 2^63.
  if (value.is_number_unsigned() && value.get<std::uint64_t>() > INT64_MAX) return std::nullopt;
  if (value.is_number_integer()) return value.get<std::int64_t>();
  if (!value.is_number()) return std::nullopt;
  const auto number = value.get<double>();
  if (number != std::floor(number) || number < -kLimit || number >= kLimit) return std::nullopt;
  return static_cast<std::int64_t>(number);
}

bool is_within(const std::optional<std::int64_t>& number, std::int64_t min, std::int64_t max) {
  return number && *number >= min && *number <= max;
}

}  // namespace

JsonFields::JsonFields(const nlohmann::ordered_json& value, std::string path,
                       std::string_view document)
    : value_(value), path_(std::move(path)) {
  if (value_.is_object()) return;
  gradwire::refuse("{} is {}; it must be an object", path_.empty() ? document : path_,
                   shown(value_));
}

bool JsonFields::has(std::string_view key) const {
  return value_.contains(key);
}

bool JsonFields::empty() const {
  return value_.empty();
}

std::string JsonFields::path_of(std::string_view key) const {
  return path_.empty() ? std::string(key) : fmt::format("{}.{}", path_, key);
}

void JsonFields::refuse(std::string_view key, const std::string& expected) const {
  const auto found = value_.find(key);
  if (found == value_.end()) {
    gradwire::refuse("{} is missing; it must be {}", path_of(key), expected);
  }
  gradwire::refuse("{} is {}; it must be {}", path_of(key), shown(*found), expected);
}

const nlohmann::ordered_json& JsonFields::find(std::string_view key, const std::string& expected) {
  if (!request(key)) refuse(key, expected);
  return *value_.find(key);
}

bool JsonFields::request(std::string_view key) {
  if (std::ranges::find(known_, key) == known_.end()) known_.emplace_back(key);
  return has(key);
}

std::vector<std::string> JsonFields::keys() const {
  std::vector<std::string> keys;
  for (const auto& [key, value] : value_.items()) keys.push_back(key);
  return keys;
}

double JsonFields::number(std::string_view key, double min, double max) {
  const std::string expected = fmt::format("a number from {} to {}", min, max);
  const auto& value = find(key, expected);
  if (!value.is_number()) refuse(key, expected);
  const auto number = value.get<double>();
  if (!(number >= min && number <= max)) refuse(key, expected);
  return number;
}

double JsonFields::number_or_nan(std::string_view key) {
  const auto& value = find(key, "a number");
  if (!value.is_number() && !value.is_null()) refuse(key, "a number");
  return value.is_null() ? std::nan("") : value.get<double>();
}

int JsonFields::integer(std::string_view key, int min, int max) {
  const std::string expected = fmt::format("a whole number from {} to {}", min, max);
  const auto number = whole_number(find(key, expected));
  if (!is_within(number, min, max)) refuse(key, expected);
  return static_cast<int>(*number);
}

std::vector<std::int64_t> JsonFields::integers(std::string_view key, std::int64_t min,
                                               std::int64_t max) {
  const std::string expected = fmt::format("a list of whole numbers from {} to {}", min, max);
  const auto& value = find(key, expected);
  if (!value.is_array()) refuse(key, expected);
  std::vector<std::int64_t> all;
  for (const auto& one : value) {
    const auto number = whole_number(one);
    if (!is_within(number, min, max)) refuse(key, expected);
    all.push_back(*number);
  }
  return all;
}

bool JsonFields::flag(std::string_view key) {
  const auto& value = find(key, "true or false");
  if (!value.is_boolean()) refuse(key, "true or false");
  return value.get<bool>();
}

std::string JsonFields::text(std::string_view key) {
  const auto& value = find(key, "a string");
  if (!value.is_string()) refuse(key, "a string");
  return value.get<std::string>();
}

std::vector<std::string> JsonFields::texts(std::string_view key) {
  const auto& value = find(key, "a list of strings");
  std::vector<std::string> all;
  if (!value.is_array()) refuse(key, "a list of strings");
  for (const auto& one : value) {
    if (!one.is_string()) refuse(key, "a list of strings");
    all.push_back(one.get<std::string>());
  }
  return all;
}

std::string JsonFields::json_text(std::string_view key) {
  return find(key, "present")
      .dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

std::vector<double> JsonFields::numbers(std::string_view key) {
  const auto& value = find(key, "a list of numbers");
  std::vector<double> all;
  if (!value.is_array()) refuse(key, "a list of numbers");
  for (const auto& one : value) {
    if (!one.is_number() && !one.is_null()) refuse(key, "a list of numbers");
    all.push_back(one.is_null() ? std::nan("") : one.get<double>());
  }
  return all;
}

JsonFields JsonFields::object(std::string_view key) {
  return JsonFields(find(key, "an object"), path_of(key));
}

std::vector<JsonFields> JsonFields::objects(std::string_view key, std::size_t min) {
  const std::string expected = min == 0 ? "a list of objects" : "a list with at least one object";
  const auto& value = find(key, expected);
  if (!value.is_array() || value.size() < min) refuse(key, expected);
  std::vector<JsonFields> all;
  for (std::size_t i = 0; i < value.size(); ++i) {
    all.emplace_back(value[i], fmt::format("{}[{}]", path_of(key), i));
  }
  return all;
}

double JsonFields::number_or(std::string_view key, double fallback, double min, double max) {
  return request(key) ? number(key, min, max) : fallback;
}

std::int64_t JsonFields::integer_or(std::string_view key, std::int64_t fallback, std::int64_t min,
                                    std::int64_t max) {
  if (!request(key)) return fallback;
  const auto number = whole_number(*value_.find(key));
  if (is_within(number, min, max)) return *number;
  const bool bounded = max != std::numeric_limits<std::int64_t>::max();
  refuse(key, bounded ? fmt::format("a whole number from {} to {}", min, max)
                      : fmt::format("a whole number, {} or more", min));
}

bool JsonFields::flag_or(std::string_view key, bool fallback) {
  return request(key) ? flag(key) : fallback;
}

std::string JsonFields::text_or(std::string_view key, std::string fallback) {
  return request(key) ? text(key) : std::move(fallback);
}

std::vector<std::string> JsonFields::texts_or(std::string_view key, const std::string& fallback) {
  if (!request(key)) return {fallback};
  if (value_.find(key)->is_array()) return texts(key);
  return {text(key)};
}

std::string JsonFields::choice_or(std::string_view key, std::string fallback,
                                  const std::vector<std::string_view>& choices) {
  auto chosen = text_or(key, std::move(fallback));
  if (std::ranges::find(choices, chosen) == choices.end()) {
    gradwire::refuse(unknown_name(path_of(key), chosen, choices));
  }
  return chosen;
}

JsonFields JsonFields::object_or_empty(std::string_view key) {
  return JsonFields(request(key) ? *value_.find(key) : kEmptyObject, path_of(key));
}

std::vector<JsonFields> JsonFields::objects_or_empty(std::string_view key) {
  return request(key) ? objects(key, 0) : std::vector<JsonFields>();
}

void JsonFields::require_version(int version) {
  const std::string expected = fmt::format("{}, the version that this gradwire reads", version);
  const auto& value = find("version", expected);
  if (!value.is_number_integer() || value.get<double>() != version) refuse("version", expected);
}

void JsonFields::refuse_others() const {
  const std::vector<std::string_view> known(known_.begin(), known_.end());
  for (const auto& item : value_.items()) {
    if (std::ranges::find(known, item.key()) != known.end()) continue;
    gradwire::refuse(
        unknown_name(path_.empty() ? "key" : fmt::format("key in {}", path_), item.key(), known));
  }
}

Status read_json_object(std::string_view text, std::string_view what,
                        const std::function<void(JsonFields)>& read) {
  const auto json = parse_json_document(text, "the " + std::string(what));
  if (!json) return tl::unexpected(json.error());
  try {
    read(JsonFields(*json, ""));
  } catch (const Exception& e) {
    return failure(e.kind(), e.what());
  }
  return {};
}

}  // namespace gradwire
