#include "gradwire/torch/hooks.h"

#include <utility>

namespace gradwire {

void Hooks::add_completion(std::int64_t id, CompletionHook hook) {
  const std::lock_guard lock(mutex_);
  completion_[id] = std::move(hook);
  wanted_ = true;
}

void Hooks::remove_completion(std::int64_t id) {
  const std::lock_guard lock(mutex_);
  completion_.erase(id);
  wanted_ = !completion_.empty() || !abort_.empty();
}

void Hooks::add_abort(std::int64_t id, AbortHook hook) {
  const std::lock_guard lock(mutex_);
  abort_[id] = std::move(hook);
  wanted_ = true;
}

void Hooks::remove_abort(std::int64_t id) {
  const std::lock_guard lock(mutex_);
  abort_.erase(id);
  wanted_ = !completion_.empty() || !abort_.empty();
}

void Hooks::completed(std::uint64_t key, float milliseconds) const {
  const std::lock_guard lock(mutex_);
  for (const auto& [id, hook] : completion_) call_completion_hook(hook, key, milliseconds);
}

void Hooks::failed() const {
  std::vector<AbortHook> hooks;  // They may take long; c10d's waits for its file.
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [id, hook] : abort_) hooks.push_back(hook);
  }
  for (const auto& hook : hooks) hook();
}

}  // namespace gradwire
