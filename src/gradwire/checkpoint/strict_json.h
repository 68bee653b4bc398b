#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "gradwire/base/error.h"

namespace gradwire::checkpoint {

/// Parses untrusted JSON. Error: invalid_argument, if the text is not JSON, or lists and objects
/// are nested more than 100 deep, which would overflow the stack of recursive code.
Result<nlohmann::json> parse_bounded_json(std::string_view text);

/// A value of untrusted JSON, with its place in the text for messages ("files[0].name"). Functions
/// throw Exception(invalid_argument), which names the place, the value and what is expected;
/// nothing is converted or rounded. The JSON must outlive this object.
class StrictJson {
 public:
  explicit StrictJson(const nlohmann::json& value, std::string place = "")
      : value_(value), place_(std::move(place)) {}

  /// Returns a member; this value must be an object.
  StrictJson at(std::string_view key) const;
  /// Returns true if this value is an object with that member.
  bool has(std::string_view key) const;
  /// Returns the elements; this value must be a list.
  std::vector<StrictJson> list() const;
  /// Returns *this, which must be an object.
  const StrictJson& object() const;
  std::string text() const;
  /// Returns an integer from 0 to `max`.
  std::uint64_t number(std::uint64_t max) const;
  /// Returns a list of integers from 0 to `max`.
  std::vector<std::uint64_t> numbers(std::uint64_t max) const;
  /// Returns any value as JSON text.
  std::string json() const;

  [[noreturn]] void refuse(const std::string& expected) const;

 private:
  const nlohmann::json& value_;
  std::string place_;
};

}  // namespace gradwire::checkpoint
