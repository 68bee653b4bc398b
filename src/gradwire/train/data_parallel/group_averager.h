#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "gradwire/gradient/make_averager.h"
#include "gradwire/torch/tensor_span.h"
#include "gradwire/train/data_parallel/bucket.h"
#include "gradwire/train/group.h"

namespace gradwire {

/// Averages buckets over any c10d group with its all-reduce. `start()` reduces `flats[bucket]`,
/// whatever span it is given. If the backend cannot average (can_average), it only sums: the caller
/// must divide the gradients beforehand. Codecs require a gradwire group.
std::unique_ptr<Averager> group_averager(ProcessGroup group, std::vector<torch::Tensor> flats);

/// Returns the averager for these buckets over `group`. For gradwire groups, it is the one that
/// `options` select, staged through host memory for buckets on an accelerator. For other groups, it
/// is group_averager(). Throws Exception on behalf of `who`: invalid_argument as make_averager()
/// does; unsupported for a codec on another backend's group, or if only some buckets are on an
/// accelerator.
std::unique_ptr<Averager> averager_for(std::string_view who, const ProcessGroup& group,
                                       const std::vector<torch::Tensor>& flats,
                                       std::vector<BucketShape> shapes,
                                       const AveragerOptions& options);

/// Returns the argument of that averager's start() for a bucket: its memory, kept alive until the
/// operation releases it. For tensors on an accelerator and for other backends' groups, only the
/// byte count is set, for traces.
LentSpan lent_bucket(c10d::ProcessGroup& group, const torch::Tensor& flat,
                     const ArgumentName& name);

}  // namespace gradwire
