#pragma once

#include <memory>

#include "gradwire/host/group.h"
#include "gradwire/pipeline/stage_transfers.h"

namespace gradwire {

/// Sends the messages of `schedule` over any c10d group; over gradwire's with priorities. Memory is
/// the host's. `schedule` must outlive it.
std::unique_ptr<pipeline::StageTransfers> group_transfers(
    ProcessGroup group, const pipeline::PipelineSchedule& schedule);

}  // namespace gradwire
