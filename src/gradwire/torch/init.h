#pragma once

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "gradwire/bootstrap/job.h"
#include "gradwire/comm/communicator.h"

namespace gradwire {

/// Joins the job described by the environment (gradwire run, torchrun, mpirun, Slurm) and returns
/// it as a process group for libtorch code. Without a launcher the world size is 1 and no network
/// is used.
///
///     auto group = gradwire::init();
///     gradwire::DataParallel model(Net(), {.process_group = group});
///
/// Throws Exception as Job::from_environment and Communicator::connect do.
c10::intrusive_ptr<c10d::ProcessGroup> init(const CommunicatorOptions& options = {});

/// Joins the job that the caller describes.
c10::intrusive_ptr<c10d::ProcessGroup> init(const Job& job,
                                            const CommunicatorOptions& options = {});

}  // namespace gradwire
