#pragma once

#include <memory>
#include <span>

#include "gradwire/engine/work.h"
#include "gradwire/engine/work_state.h"

namespace gradwire {

/// Returns a Work that is done when all of `works` are; its error is the first of theirs. Without
/// works, it is done.
engine::Work work_group(std::shared_ptr<engine::Engine> engine,
                        std::span<const engine::Work> works);

}  // namespace gradwire
