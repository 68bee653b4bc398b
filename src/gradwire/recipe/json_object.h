#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace gradwire::recipe {

/// Reads one object of a configuration key by key, then rejects unread keys. Every getter returns
/// the default if the key is absent. Errors are Exception(invalid_argument) with the full path of
/// the key ("optimizer.momentum"), the value found and the values allowed. The JSON must outlive
/// this.
class JsonObject {
 public:
  /// `path`: position of the object in the document; "" for the root.
  JsonObject(const nlohmann::json& value, std::string path);

  bool has(std::string_view key) const;
  bool empty() const;

  double number(std::string_view key, double fallback, double min, double max);
  std::int64_t integer(std::string_view key, std::int64_t fallback, std::int64_t min,
                       std::int64_t max = std::numeric_limits<std::int64_t>::max());
  bool flag(std::string_view key, bool fallback);
  std::string text(std::string_view key, std::string fallback);

  /// Reads a string that must be one of `choices`.
  std::string choice(std::string_view key, std::string fallback,
                     const std::vector<std::string_view>& choices);

  /// Returns a nested object; an empty one if absent.
  JsonObject object(std::string_view key);

  /// Call after all keys have been read. Throws for the first unread key and suggests the nearest
  /// known one.
  void refuse_unknown() const;

 private:
  const nlohmann::json* find(std::string_view key);
  std::string path_of(std::string_view key) const;
  [[noreturn]] void refuse(std::string_view key, const nlohmann::json& value,
                           const std::string& expected) const;

  const nlohmann::json& value_;
  std::string path_;
  std::vector<std::string> known_;
};

/// Applies a "key.sub=value" setting to a configuration. The value is JSON if it parses ("0.1",
/// "true", "[1]"), otherwise a string. Throws Exception(invalid_argument) if "=" is missing or if
/// the key is inside a value that is not an object.
void apply_setting(nlohmann::json& config, std::string_view setting);

}  // namespace gradwire::recipe
