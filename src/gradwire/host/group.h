#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "gradwire/host/named_tensor.h"
#include "gradwire/trace/trace_peers.h"

namespace gradwire {

/// A process group of any c10d backend.
using ProcessGroup = c10::intrusive_ptr<c10d::ProcessGroup>;

/// A group of this rank alone, which needs no network.
ProcessGroup group_of_one();

/// A TraceSession's peers over any c10d group that can send and receive bytes in host memory (Gloo,
/// MPI, gradwire): for traces of training on groups without a Communicator.
std::unique_ptr<TracePeers> group_trace_peers(ProcessGroup group);

/// Broadcasts the tensors of rank `root` to all ranks, coalesced into messages of at most about
/// `message_bytes`. Every rank must pass tensors of the same shapes and types.
void broadcast_tensors(c10d::ProcessGroup& group, const std::vector<NamedTensor>& tensors,
                       int root = 0, std::size_t message_bytes = 25 << 20);

/// Throws Exception(unsupported), on behalf of `who`, unless `codec` is "none". For groups of other
/// backends, which have no codecs.
void refuse_codec_without_communicator(std::string_view who, const std::string& codec);

/// Gathers the texts of all ranks on every rank. Throws Exception(unsupported) if the group has no
/// backend for tensors in host memory, and so does sum_over_ranks().
std::vector<std::string> gather_texts(c10d::ProcessGroup& group, const std::string& text);

/// Sums each value over ranks; the result is on every rank.
std::vector<double> sum_over_ranks(c10d::ProcessGroup& group, std::vector<double> values);

/// Returns the device type of all tensors; the CPU if there are none. Throws
/// Exception(unsupported), which names `who`, if the types differ.
c10::DeviceType one_device_type(std::string_view who, const std::vector<torch::Tensor>& tensors);

/// Returns true if the group's backend for `device` supports averaging (c10d's ReduceOp::AVG).
bool can_average(c10d::ProcessGroup& group, c10::DeviceType device);

/// Fails all operations in flight of this group on this rank. If the backend supports it, they fail
/// on the other ranks too, so that none waits for this rank.
void abort_group(c10d::ProcessGroup& group, const std::string& reason) noexcept;

/// Runs `task`. If it throws, aborts the group with the error's text and rethrows.
template <class Task>
void run_or_abort(c10d::ProcessGroup& group, const Task& task) {
  try {
    task();
  } catch (const std::exception& error) {
    abort_group(group, error.what());
    throw;
  }
}

}  // namespace gradwire
