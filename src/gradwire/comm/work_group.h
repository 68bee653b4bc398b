#pragma once

#include <memory>
#include <span>

#include "gradwire/comm/work.h"
#include "gradwire/comm/work_state.h"

namespace gradwire {

/// A Work that is done when all of `works` are, with the first error of any. None at all: done.
Work work_group(std::shared_ptr<Engine> engine, std::span<const Work> works);

}  // namespace gradwire
