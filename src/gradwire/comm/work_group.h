#pragma once

#include <memory>
#include <span>

#include "gradwire/base/work.h"
#include "gradwire/engine/engine.h"

namespace gradwire {

/// Returns a Work that is done when all of `works` are; its error is the first of theirs. Without
/// works, it is done.
Work work_group(std::shared_ptr<engine::Engine> engine, std::span<const Work> works);

}  // namespace gradwire
