#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "gradwire/base/error.h"

namespace gradwire {

/// Parses JSON that may be hostile. Error: invalid_argument, for what is no JSON, and for lists and
/// objects nested more than 100 deep, which would overflow the stack of whoever walks over them.
Result<nlohmann::json> parse_bounded_json(std::string_view text);

/// A value of a JSON text that may be hostile, with its place in the text for messages
/// ("files[0].name"). Functions throw Exception(invalid_argument) that names the place, the value
/// and what it must be; nothing is converted or rounded. The JSON must outlive this.
class StrictJson {
 public:
  explicit StrictJson(const nlohmann::json& value, std::string place = "")
      : value_(value), place_(std::move(place)) {}

  /// A member of this, which must be an object.
  StrictJson at(std::string_view key) const;
  /// The elements of this, which must be a list.
  std::vector<StrictJson> list() const;
  /// This, which must be an object.
  const StrictJson& object() const;
  std::string text() const;
  /// This, which must be a whole number from 0 to `most`.
  std::uint64_t number(std::uint64_t most) const;
  /// The elements of this, which must be a list of whole numbers from 0 to `most`.
  std::vector<std::uint64_t> numbers(std::uint64_t most) const;
  /// Whatever this is, as JSON.
  std::string json() const { return value_.dump(); }

  [[noreturn]] void refuse(const std::string& expected) const;

 private:
  const nlohmann::json& value_;
  std::string place_;
};

}  // namespace gradwire
