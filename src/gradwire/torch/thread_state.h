#pragma once

#include <functional>

namespace gradwire {

/// Wraps `task`, to be run once on another thread, so that it runs with this thread's state of
/// libtorch's profilers and of MemoryTracker. It is then attributed to this thread, as is the
/// release of what `task` holds.
std::function<void()> with_thread_state(std::function<void()> task);

}  // namespace gradwire
