#pragma once

#include <cstddef>
#include <vector>

#include "gradwire/gradient/averager.h"
#include "gradwire/gradient/bucket_plan.h"
#include "gradwire/gradient/layer_profile.h"

namespace gradwire {

/// How a profile's gradients become buckets.
struct StepPlanOptions {
  /// Chosen by measurement (docs/ladder.md).
  BucketLimits limits{.first_bytes = 1 << 20, .bytes = 4 << 20, .last_bytes = 32 << 10};
  /// Larger tensors are cut into pieces of about so many bytes, between rows; 0: they are not.
  std::size_t partition_bytes = 0;
  /// Vectors and tensors of fewer than `exact_below` elements travel exactly, in buckets of their
  /// own: their errors hurt most and their bytes count least. Otherwise all travel alike.
  bool compress = false;
  std::size_t exact_below = 1 << 14;
};

/// The buckets of a profile and which layers they depend on. They are in the order in which
/// backward completes them, which is the reverse of the order in which forward needs them.
struct StepPlan {
  std::vector<BucketShape> buckets;
  /// By bucket: the first layer that has a gradient in it, after whose backward it may leave and
  /// before whose forward it must have come. Never ascends.
  std::vector<std::size_t> first_layer;
  /// By layer: the buckets that hold its parameters.
  std::vector<std::vector<std::size_t>> needs;

  std::size_t elements() const;
};

StepPlan plan_step(const LayerProfile& profile, const StepPlanOptions& options = {});

/// Divides the buckets among `fragments` of about equally many elements, as local SGD sends them,
/// one each step (Douillard et al., "Streaming DiLoCo with overlapping communication",
/// arXiv:2501.18512, section 2.2): the fragment of each bucket, 0 .. fragments - 1.
std::vector<std::size_t> plan_fragments(const StepPlan& plan, std::size_t fragments);

}  // namespace gradwire
