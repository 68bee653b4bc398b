#pragma once

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "gradwire/bootstrap/job.h"
#include "gradwire/comm/communicator.h"

namespace gradwire {

/// Initializes PyTorch's vector functions (exp, sqrt, log, ... of many elements) on one thread. MKL
/// initializes them at their first use. If two threads race for it, one may compute its part with a
/// relative error of 1.5e-4, that one time. Ranks that must have the same bits then differ (PyTorch
/// 2.13 on a Xeon with AVX-512: one process in 200, by itself). After a first use on a single
/// thread, none of 5,000 processes did. Thread-safe; repeated calls are free.
void initialize_vector_math();

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
c10::intrusive_ptr<c10d::ProcessGroup> init(const bootstrap::Job& job,
                                            const CommunicatorOptions& options = {});

}  // namespace gradwire
