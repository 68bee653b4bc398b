#pragma once

#include <functional>

namespace gradwire {

/// `task`, to be run once on another thread, with what libtorch's profilers and our MemoryTracker
/// have set on this one: it counts as done here, and so does giving up what `task` holds.
std::function<void()> as_on_this_thread(std::function<void()> task);

}  // namespace gradwire
