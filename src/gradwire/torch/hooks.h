#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "gradwire/torch/releases.h"

namespace gradwire {

using CompletionHook = std::function<void(const c10d::CompletionHookArgs&)>;
using AbortHook = std::function<void()>;

/// Calls when an operation of a group has succeeded, or the group has failed: c10d's hooks, which
/// its flight recorder uses. Shared with operations, which may outlive the group. Thread-safe.
class Hooks {
 public:
  void add_completion(std::int64_t id, CompletionHook hook);
  void remove_completion(std::int64_t id);
  void add_abort(std::int64_t id, AbortHook hook);
  void remove_abort(std::int64_t id);

  /// Returns true if a hook is registered. Takes no lock.
  bool wanted() const { return wanted_.load(std::memory_order_relaxed); }

  /// Reports the operation with this key (Work::getCompletionKey()), which took `milliseconds`.
  void completed(std::uint64_t key, float milliseconds) const;
  /// Reports the failure of the group. Returns when the hooks have run.
  void failed() const;

 private:
  mutable std::mutex mutex_;
  std::map<std::int64_t, CompletionHook> completion_;
  std::map<std::int64_t, AbortHook> abort_;
  std::atomic<bool> wanted_ = false;
};

}  // namespace gradwire
