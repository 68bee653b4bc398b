#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <nlohmann/json.hpp>

#include "gradwire/base/error.h"

namespace gradwire {

/// Reads one object of a JSON text strictly: every key asked for must be there and in range, and
/// every other key is refused. Getters and refusals throw Exception(invalid_argument), which names
/// the place, what is there and what would be right; read_json_fields() turns it into a value. The
/// JSON must outlive this.
class JsonFields {
 public:
  /// `path`: where it is in the text, "paths[3]"; "" for the whole.
  JsonFields(const nlohmann::ordered_json& value, std::string path);

  bool has(std::string_view key) const { return value_.contains(key); }
  double number(std::string_view key, double least, double most);
  /// Any number; null, which stands for what is not finite, becomes NaN.
  double number_or_nan(std::string_view key);
  /// A list of such.
  std::vector<double> numbers(std::string_view key);
  int integer(std::string_view key, int least, int most);
  bool flag(std::string_view key);
  std::string text(std::string_view key);
  std::vector<std::string> texts(std::string_view key);
  /// Whatever is there, as JSON.
  std::string json_text(std::string_view key);
  JsonFields object(std::string_view key);

  /// The objects of a list with at least so many.
  std::vector<JsonFields> objects(std::string_view key, std::size_t least);

  /// Refuses a text whose "version" is not this one.
  void require_version(int version);

  /// Says that the value of a key is not `expected`.
  [[noreturn]] void refuse(std::string_view key, const std::string& expected) const;

  /// To be called last: refuses keys that nobody asked for, with the nearest known one.
  void refuse_others() const;

 private:
  const nlohmann::ordered_json& find(std::string_view key, const std::string& expected);
  std::string path_of(std::string_view key) const;

  const nlohmann::ordered_json& value_;
  std::string path_;
  std::vector<std::string> known_;
};

/// Parses `text`, an object, and hands it to `read`. `what` names the whole in errors ("topology").
/// Error: invalid_argument, for what is no JSON or what `read` refuses.
template <class Read>
auto read_json_fields(std::string_view text, std::string_view what, Read read)
    -> Result<std::invoke_result_t<Read, JsonFields>> {
  const auto json = nlohmann::ordered_json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) {
    return failure(ErrorKind::invalid_argument, "the " + std::string(what) + " is not JSON");
  }
  try {
    return read(JsonFields(json, ""));
  } catch (const Exception& e) {
    return failure(e.kind(), e.what());
  }
}

}  // namespace gradwire
