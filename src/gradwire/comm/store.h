#pragma once

#include <string>

#include "gradwire/base/error.h"
#include "gradwire/base/types.h"

namespace gradwire {

/// Where ranks leave each other small notes before they are connected: addresses, mostly. Ours is
/// the authenticated one of comm/rendezvous_store.h; the torch layer adapts those of c10d.
/// Thread-safe. Keys and values are any bytes.
class Store {
 public:
  virtual ~Store() = default;

  /// Errors: disconnected, timeout, refused.
  virtual Status set(const std::string& key, const std::string& value) = 0;

  /// Waits until somebody has set `key`, at most `timeout`. Errors: timeout, disconnected, refused.
  virtual Result<std::string> get(const std::string& key, Duration timeout) = 0;
};

}  // namespace gradwire
