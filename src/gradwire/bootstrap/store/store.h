#pragma once

#include <string>

#include "gradwire/base/error.h"
#include "gradwire/base/types.h"

namespace gradwire::bootstrap {

/// Key-value store through which ranks exchange small values, mostly addresses, before they are
/// connected. gradwire's own is the authenticated one of bootstrap/store/job_store.h; the torch
/// layer adapts those of c10d. Keys and values are arbitrary bytes. Thread-safe.
class Store {
 public:
  virtual ~Store() = default;

  /// Fails with disconnected, timeout or refused.
  virtual Status set(const std::string& key, const std::string& value) = 0;

  /// Waits up to `timeout` until `key` is set. Fails with timeout, disconnected or refused.
  virtual Result<std::string> get(const std::string& key, Duration timeout) = 0;
};

}  // namespace gradwire::bootstrap
