#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>

#include "gradwire/base/error.h"

namespace gradwire::bootstrap {

/// Key-value table; keys and values are arbitrary bytes, as in c10d's stores. Holds at most
/// `max_bytes` in total: a change that would exceed that fails with invalid_argument and has no
/// effect. Not thread-safe.
class KeyTable {
 public:
  explicit KeyTable(std::size_t max_bytes) : max_bytes_(max_bytes) {}

  /// Returns null if the key does not exist. Valid until the table changes.
  const std::string* find(const std::string& key) const;

  Status set(const std::string& key, std::string value);
  Status append(const std::string& key, const std::string& value);

  /// Adds to a decimal number (0 if the key does not exist) and returns the sum. Fails with
  /// invalid_argument if the value is not such a number.
  Result<std::int64_t> add(const std::string& key, std::int64_t amount);

  /// Sets `desired` if the value is `expected`, or if the key does not exist and `expected` is
  /// empty. Returns the resulting value; `expected` if the key does not exist.
  Result<std::string> compare_set(const std::string& key, const std::string& expected,
                                  const std::string& desired);

  /// Returns true if the key existed.
  bool erase(const std::string& key);

  std::size_t size() const { return values_.size(); }

 private:
  std::size_t max_bytes_;
  std::size_t bytes_ = 0;
  std::unordered_map<std::string, std::string> values_;
};

}  // namespace gradwire::bootstrap
