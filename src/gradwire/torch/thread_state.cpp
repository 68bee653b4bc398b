#include "gradwire/torch/thread_state.h"

#include <utility>

#include <c10/util/ThreadLocalDebugInfo.h>

namespace gradwire {

std::function<void()> with_thread_state(std::function<void()> task) {
  return [task = std::move(task), state = c10::ThreadLocalDebugInfo::current()]() mutable {
    const c10::DebugInfoGuard as_there(state);
    task();
    task = nullptr;
  };
}

}  // namespace gradwire
