#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace gradwire {

/// Reads one object of a configuration, key by key, and then refuses the keys that nobody asked
/// for. Every getter returns the default if the key is absent. Errors are
/// Exception(invalid_argument) and name the full path of the key ("optimizer.momentum"), what is
/// there, and what would be right. The JSON must outlive this.
class JsonObject {
 public:
  /// `path`: where the object is in the whole; "" for the whole.
  JsonObject(const nlohmann::json& value, std::string path);

  bool has(std::string_view key) const;
  bool empty() const;

  double number(std::string_view key, double otherwise, double least, double most);
  std::int64_t integer(std::string_view key, std::int64_t otherwise, std::int64_t least,
                       std::int64_t most = std::numeric_limits<std::int64_t>::max());
  bool flag(std::string_view key, bool otherwise);
  std::string text(std::string_view key, std::string otherwise);

  /// A text that must be one of `choices`.
  std::string choice(std::string_view key, std::string otherwise,
                     const std::vector<std::string_view>& choices);

  /// An object inside; an empty one if absent.
  JsonObject object(std::string_view key);

  /// To be called when all keys have been asked for: throws for the first other one, with the
  /// nearest of those that exist.
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

/// Puts "key.sub=value" into a configuration. The value is JSON if it parses as such ("0.1",
/// "true",
/// "[1]"), else a text. Throws Exception(invalid_argument) for a setting without "=" or with a key
/// inside something that is not an object.
void apply_setting(nlohmann::json& config, std::string_view setting);

}  // namespace gradwire
