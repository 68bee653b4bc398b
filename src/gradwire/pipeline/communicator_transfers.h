#pragma once

#include <memory>

#include "gradwire/comm/communicator.h"
#include "gradwire/pipeline/stage_transfers.h"

namespace gradwire::pipeline {

/// Sends the messages of `schedule` over a communicator, in which stages have the ranks that the
/// schedule says. `schedule` must outlive it. `prioritizes`: messages overtake other operations
/// (priority_of()).
std::unique_ptr<StageTransfers> communicator_transfers(std::shared_ptr<Communicator> communicator,
                                                       const PipelineSchedule& schedule,
                                                       bool prioritizes = true);

}  // namespace gradwire::pipeline
