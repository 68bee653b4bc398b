#pragma once

#include <memory>
#include <vector>

#include "gradwire/comm/communicator.h"

namespace gradwire {

/// Makes communicators for `devices` threads of this process, which are ranks p * devices + 0, 1,
/// ... of as many ranks on each process p of `between`; null: this process is alone. Every process
/// must have the same number of devices. Between processes there is one operation for all devices
/// of each.
///
/// Operations meet in the memory of the process: reductions run in the memory of the caller, in
/// slices, by the thread that posts last and by those that wait. Sums have the order of the
/// algorithm recursive_doubling, then that of the operation between processes: with two devices
/// there is one order, so that the bits are those of two processes.
///
/// An error ends all of them, and `between`. Messages between processes take no recv_any, and a
/// subgroup has devices of one process, or throws Exception(unsupported). Reserve lanes before they
/// are used. `options`: the timeouts, and failure_domain, which must be `job`. Collective over the
/// processes. Throws Exception(invalid_argument).
std::vector<std::shared_ptr<Communicator>> device_communicators(
    std::shared_ptr<Communicator> between, int devices, const CommunicatorOptions& options);

/// The same, with the operation timeout of `between`, or the default one.
std::vector<std::shared_ptr<Communicator>> device_communicators(
    std::shared_ptr<Communicator> between, int devices);

}  // namespace gradwire
