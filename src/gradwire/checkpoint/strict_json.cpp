#include "gradwire/checkpoint/strict_json.h"

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "gradwire/base/refuse.h"

namespace gradwire::checkpoint {
namespace {

using nlohmann::json;

constexpr int kMaxNesting = 100;

/// Returns the maximum nesting depth of lists and objects; the text need not be valid JSON.
int nesting(std::string_view text) {
  int depth = 0;
  int deepest = 0;
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (quoted && text[i] == '\\') {
      ++i;
    } else if (quoted) {
      quoted = text[i] != '"';
    } else if (text[i] == '"') {
      quoted = true;
    } else if (text[i] == '[' || text[i] == '{') {
      deepest = std::max(deepest, ++depth);
    } else if (text[i] == ']' || text[i] == '}') {
      --depth;
    }
  }
  return deepest;
}

/// Returns the value as text for a message; long values are truncated.
std::string shown(const json& value) {
  constexpr std::size_t kMaxShown = 60;
  auto text = value.dump(-1, ' ', true, json::error_handler_t::replace);
  if (text.size() > kMaxShown) text = text.substr(0, kMaxShown) + "...";
  return text;
}

bool is_number_to(const json& value, std::uint64_t max) {
  const bool negative = !value.is_number_unsigned() && value.is_number_integer() &&
                        value.get_ref<const json::number_integer_t&>() < 0;
  return value.is_number_integer() && !negative && value.get<std::uint64_t>() <= max;
}

}  // namespace

Result<json> parse_bounded_json(std::string_view text) {
  if (const int depth = nesting(text); depth > kMaxNesting) {
    return failure(
        ErrorKind::invalid_argument,
        fmt::format("lists and objects are nested {} deep; the maximum is {}", depth, kMaxNesting));
  }
  auto parsed = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (parsed.is_discarded()) return failure(ErrorKind::invalid_argument, "it is not JSON");
  return parsed;
}

void StrictJson::refuse(const std::string& expected) const {
  gradwire::refuse("'{}' is {}; it must be {}", place_, shown(value_), expected);
}

bool StrictJson::has(std::string_view key) const {
  return value_.is_object() && value_.contains(key);
}

std::string StrictJson::json() const {
  return value_.dump();
}

const StrictJson& StrictJson::object() const {
  if (!value_.is_object()) refuse("an object");
  return *this;
}

StrictJson StrictJson::at(std::string_view key) const {
  const auto found = object().value_.find(key);
  auto place = place_.empty() ? std::string(key) : fmt::format("{}.{}", place_, key);
  if (found == value_.end()) gradwire::refuse("'{}' is missing", place);
  return StrictJson(*found, std::move(place));
}

std::vector<StrictJson> StrictJson::list() const {
  if (!value_.is_array()) refuse("a list");
  std::vector<StrictJson> elements;
  elements.reserve(value_.size());
  for (const auto& value : value_) {
    elements.emplace_back(value, fmt::format("{}[{}]", place_, elements.size()));
  }
  return elements;
}

std::string StrictJson::text() const {
  if (!value_.is_string()) refuse("a text");
  return value_.get<std::string>();
}

std::uint64_t StrictJson::number(std::uint64_t max) const {
  if (!is_number_to(value_, max)) refuse(fmt::format("a whole number from 0 to {}", max));
  return value_.get<std::uint64_t>();
}

std::vector<std::uint64_t> StrictJson::numbers(std::uint64_t max) const {
  const bool right = value_.is_array() && std::ranges::all_of(value_, [max](const auto& value) {
                       return is_number_to(value, max);
                     });
  if (!right) refuse(fmt::format("a list of whole numbers from 0 to {}", max));
  return value_.get<std::vector<std::uint64_t>>();
}

}  // namespace gradwire::checkpoint
