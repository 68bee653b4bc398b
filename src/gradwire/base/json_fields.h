#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "gradwire/base/error.h"

namespace gradwire {

/// Reads one object of a JSON document strictly: every value must be of the requested type and in
/// range, and keys that were not requested are refused. Getters and refusals throw
/// Exception(invalid_argument), which names the place, the value found and the value expected;
/// read_json_fields() turns it into an error value. The JSON value must outlive this.
class JsonFields {
 public:
  /// `path`: the object's place in the document, such as "paths[3]"; "" for the whole document,
  /// which errors call `document`.
  JsonFields(const nlohmann::ordered_json& value, std::string path,
             std::string_view document = "the document");

  bool has(std::string_view key) const;
  bool empty() const;
  /// All keys, for objects whose keys are names that the user chooses.
  std::vector<std::string> keys() const;

  // The key must be present.
  double number(std::string_view key, double min, double max);
  /// Any number; null, which stands for a value that is not finite, becomes NaN.
  double number_or_nan(std::string_view key);
  /// A list of numbers, as number_or_nan().
  std::vector<double> numbers(std::string_view key);
  // Whole numbers may be written as 5e8.
  int integer(std::string_view key, int min, int max);
  std::vector<std::int64_t> integers(std::string_view key, std::int64_t min, std::int64_t max);
  bool flag(std::string_view key);
  std::string text(std::string_view key);
  std::vector<std::string> texts(std::string_view key);
  /// Any value, as JSON text.
  std::string json_text(std::string_view key);
  JsonFields object(std::string_view key);

  /// The objects of a list that has at least `min`.
  std::vector<JsonFields> objects(std::string_view key, std::size_t min);

  // `fallback`, or an empty object, if the key is absent.
  double number_or(std::string_view key, double fallback, double min, double max);
  std::int64_t integer_or(std::string_view key, std::int64_t fallback, std::int64_t min,
                          std::int64_t max = std::numeric_limits<std::int64_t>::max());
  bool flag_or(std::string_view key, bool fallback);
  std::string text_or(std::string_view key, std::string fallback);
  /// A string, or a list of strings; one string is a list of it.
  std::vector<std::string> texts_or(std::string_view key, const std::string& fallback);
  /// A string that must be one of `choices`.
  std::string choice_or(std::string_view key, std::string fallback,
                        const std::vector<std::string_view>& choices);
  JsonFields object_or_empty(std::string_view key);
  /// A list of objects; none if the key is absent.
  std::vector<JsonFields> objects_or_empty(std::string_view key);

  /// Refuses a document whose "version" is not this one.
  void require_version(int version);

  /// Throws: the value of `key` is missing or is not `expected`.
  [[noreturn]] void refuse(std::string_view key, const std::string& expected) const;

  /// Call last: refuses keys that were not requested, and suggests the nearest known one.
  void refuse_others() const;

 private:
  const nlohmann::ordered_json& find(std::string_view key, const std::string& expected);
  /// Returns true if the key, which is known from now on, is present.
  bool request(std::string_view key);
  std::string path_of(std::string_view key) const;

  const nlohmann::ordered_json& value_;
  std::string path_;
  std::vector<std::string> known_;
};

/// The part of read_json_fields() that does not depend on what `read` returns.
Status read_json_object(std::string_view text, std::string_view what,
                        const std::function<void(JsonFields)>& read);

/// Parses `text`, an object, and passes it to `read`. `what` names the document in errors
/// ("topology"). Fails with invalid_argument if the text is not JSON or `read` refuses it.
template <class Read>
auto read_json_fields(std::string_view text, std::string_view what, Read read)
    -> Result<std::invoke_result_t<Read, JsonFields>> {
  std::optional<std::invoke_result_t<Read, JsonFields>> result;
  const Status status = read_json_object(
      text, what, [&](JsonFields fields) { result.emplace(read(std::move(fields))); });
  if (!status) return tl::unexpected(status.error());
  return *std::move(result);
}

}  // namespace gradwire
