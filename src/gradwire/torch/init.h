#pragma once

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "gradwire/comm/communicator.h"
#include "gradwire/comm/job.h"

namespace gradwire {

/// Joins the job that the environment describes (gradwire run, torchrun, mpirun, Slurm; with no
/// launcher a world of one, which touches no network) and returns it as the process group that
/// libtorch code takes:
///
///     auto group = gradwire::init();
///     gradwire::DataParallel model(Net(), {.process_group = group});
///
/// Throws Exception as Job::from_environment and Communicator::connect do.
c10::intrusive_ptr<c10d::ProcessGroup> init(const CommunicatorOptions& options = {});

/// The same for a job that the caller describes.
c10::intrusive_ptr<c10d::ProcessGroup> init(const Job& job,
                                            const CommunicatorOptions& options = {});

}  // namespace gradwire
