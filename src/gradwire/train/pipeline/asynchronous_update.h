#pragma once

#include <memory>

#include "gradwire/train/pipeline/stage_update.h"

namespace gradwire {

/// Of an asynchronous schedule: steps the stage while micro-batches are under way, with the mean of
/// its replicas' gradients, which step() waits for. Collective over the replicas. `module` must
/// outlive it. Throws Exception(invalid_argument) if the method does not support the optimizer.
std::unique_ptr<StageUpdate> make_asynchronous_update(StageModule& module, WeightMethod method,
                                                      const StagePlace& place,
                                                      const DataParallelism& data,
                                                      const OptimizerFactory& optimizer);

}  // namespace gradwire
