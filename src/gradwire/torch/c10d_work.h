#pragma once

#include <functional>

#include <torch/csrc/distributed/c10d/Work.hpp>

#include "gradwire/base/work.h"

namespace gradwire {

/// Calls `action` and turns errors of other backends that concern a peer or the network into
/// Exception(disconnected). Errors of this rank alone, such as those of memory and devices, pass.
void with_our_errors(const std::function<void()>& action);

/// Returns a c10d::Work as our Work. Its end is learned in wait(), which may be called once.
/// `finish` runs after the work, in stream order; may be empty.
Work work_of(c10::intrusive_ptr<c10d::Work> work, std::function<void()> finish = {});

}  // namespace gradwire
