#include "gradwire/base/json_fields.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "gradwire/base/suggest.h"

namespace gradwire {
namespace {

[[noreturn]] void invalid(const std::string& message) {
  throw Exception(ErrorKind::invalid_argument, message);
}

/// Long values are truncated.
std::string shown(const nlohmann::ordered_json& value) {
  constexpr std::size_t kMaxShown = 60;
  std::string text = value.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  if (text.size() > kMaxShown) text = text.substr(0, kMaxShown) + "...";
  return text;
}

}  // namespace

JsonFields::JsonFields(const nlohmann::ordered_json& value, std::string path)
    : value_(value), path_(std::move(path)) {
  if (value_.is_object()) return;
  invalid(fmt::format("{} is {}; it must be an object", path_.empty() ? "the document" : path_,
                      shown(value_)));
}

std::string JsonFields::path_of(std::string_view key) const {
  return path_.empty() ? std::string(key) : fmt::format("{}.{}", path_, key);
}

void JsonFields::refuse(std::string_view key, const std::string& expected) const {
  const auto found = value_.find(key);
  if (found == value_.end()) {
    invalid(fmt::format("{} is missing; it must be {}", path_of(key), expected));
  }
  invalid(fmt::format("{} is {}; it must be {}", path_of(key), shown(*found), expected));
}

const nlohmann::ordered_json& JsonFields::find(std::string_view key, const std::string& expected) {
  known_.emplace_back(key);
  const auto found = value_.find(key);
  if (found == value_.end()) refuse(key, expected);
  return *found;
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
  const auto& value = find(key, expected);
  if (!value.is_number_integer()) refuse(key, expected);
  const auto number = value.get<double>();
  if (number < min || number > max) refuse(key, expected);
  return value.get<int>();
}

bool JsonFields::flag(std::string_view key) {
  const auto& value = find(key, "true or false");
  if (!value.is_boolean()) refuse(key, "true or false");
  return value.get<bool>();
}

std::string JsonFields::text(std::string_view key) {
  const auto& value = find(key, "a text");
  if (!value.is_string()) refuse(key, "a text");
  return value.get<std::string>();
}

std::vector<std::string> JsonFields::texts(std::string_view key) {
  const auto& value = find(key, "a list of texts");
  std::vector<std::string> all;
  if (!value.is_array()) refuse(key, "a list of texts");
  for (const auto& one : value) {
    if (!one.is_string()) refuse(key, "a list of texts");
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

void JsonFields::require_version(int version) {
  const std::string expected = fmt::format("{}, the version that this gradwire reads", version);
  const auto& value = find("version", expected);
  if (!value.is_number_integer() || value.get<double>() != version) refuse("version", expected);
}

void JsonFields::refuse_others() const {
  const std::vector<std::string_view> known(known_.begin(), known_.end());
  for (const auto& item : value_.items()) {
    if (std::ranges::find(known, item.key()) != known.end()) continue;
    invalid(
        unknown_name(path_.empty() ? "key" : fmt::format("key in {}", path_), item.key(), known));
  }
}

}  // namespace gradwire
