#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>

#include "gradwire/base/error.h"

namespace gradwire {

/// Values by their keys, any bytes both, as c10d's stores keep them; of at most `most_bytes`
/// together. Whoever would exceed that gets Error(invalid_argument), and nothing changes. Not
/// thread-safe.
class KeyTable {
 public:
  explicit KeyTable(std::size_t most_bytes) : most_bytes_(most_bytes) {}

  /// Null if there is none. Valid until the table changes.
  const std::string* find(const std::string& key) const;

  Status set(const std::string& key, std::string value);
  Status append(const std::string& key, const std::string& value);

  /// Adds to a number in decimal digits, 0 if there is none, and returns the sum. Error:
  /// invalid_argument, if the value is no such number.
  Result<std::int64_t> add(const std::string& key, std::int64_t amount);

  /// Sets `desired` if the value is `expected`, or if there is none and `expected` is empty.
  /// Returns what the value is then; `expected` if there is none.
  Result<std::string> compare_set(const std::string& key, const std::string& expected,
                                  const std::string& desired);

  /// Whether there was one.
  bool erase(const std::string& key);

  std::size_t size() const { return values_.size(); }

 private:
  std::size_t most_bytes_;
  std::size_t bytes_ = 0;
  std::unordered_map<std::string, std::string> values_;
};

}  // namespace gradwire
