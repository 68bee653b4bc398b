#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "gradwire/gradient/make_averager.h"
#include "gradwire/torch/tensor_span.h"
#include "gradwire/train/bucket.h"
#include "gradwire/train/group.h"

namespace gradwire {

/// Averages the buckets over any c10d group, by its own all-reduce. `start()` is about
/// `flats[bucket]`, whatever span it is given. Divides nothing where the backend cannot average
/// (can_average): gradients must then have been divided before. Codecs need gradwire's own groups.
std::unique_ptr<Averager> group_averager(ProcessGroup group, std::vector<torch::Tensor> flats);

/// The averager for these buckets over `group`: of gradwire's own groups the one that `options` ask
/// for, by way of the host's memory for buckets on an accelerator; of others group_averager().
/// Throws Exception: invalid_argument (as make_averager does), unsupported (a codec on a group of
/// others; some buckets on an accelerator and some not), on behalf of `who`.
std::unique_ptr<Averager> averager_for(std::string_view who, const ProcessGroup& group,
                                       const std::vector<torch::Tensor>& flats,
                                       std::vector<BucketShape> shapes,
                                       const AveragerOptions& options);

/// What that averager's start() is to be given of a bucket: its memory, kept alive until the
/// operation lets go of it; only how many bytes, for traces, of tensors on an accelerator and for
/// groups of others.
LentSpan lent_bucket(c10d::ProcessGroup& group, const torch::Tensor& flat,
                     const ArgumentName& name);

}  // namespace gradwire
