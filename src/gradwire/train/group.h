#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "gradwire/train/named_tensor.h"

namespace gradwire {

/// A process group of any backend, as c10d hands it round.
using ProcessGroup = c10::intrusive_ptr<c10d::ProcessGroup>;

/// Overwrites the tensors of all ranks with those of rank `root`, several of them in one message of
/// at most about `message_bytes`. Every rank must pass tensors of the same shapes and types.
void broadcast_tensors(c10d::ProcessGroup& group, const std::vector<NamedTensor>& tensors,
                       int root = 0, std::size_t message_bytes = 25 << 20);

/// Groups of other backends have no codecs: throws Exception(unsupported), on behalf of `who`,
/// unless `codec` is "none".
void refuse_codec_of_other_groups(std::string_view who, const std::string& codec);

/// The texts of all ranks, on every rank.
std::vector<std::string> gather_texts(c10d::ProcessGroup& group, const std::string& text);

/// The sum over ranks of each value, on every rank.
std::vector<double> sum_over_ranks(c10d::ProcessGroup& group, std::vector<double> values);

/// The kind of device that all tensors are on; of none, the CPU. Throws Exception(unsupported),
/// which names `who`, if they are on several.
c10::DeviceType one_device_type(std::string_view who, const std::vector<torch::Tensor>& tensors);

/// Whether the group's backend for `device` can average while it reduces (c10d's ReduceOp::AVG).
bool can_average(c10d::ProcessGroup& group, c10::DeviceType device);

/// Makes whatever this group has in flight fail here and, where the backend can tell them, on the
/// other ranks, so that none waits for what this one will not do.
void abort_group(c10d::ProcessGroup& group, const std::string& reason) noexcept;

}  // namespace gradwire
