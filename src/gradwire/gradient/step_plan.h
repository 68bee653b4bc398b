#pragma once

#include <cstddef>
#include <vector>

#include "gradwire/gradient/averager.h"
#include "gradwire/gradient/bucket_plan.h"
#include "gradwire/gradient/defaults.h"
#include "gradwire/gradient/layer_profile.h"

namespace gradwire {

/// How a profile's gradients become buckets.
struct StepPlanOptions {
  BucketLimits limits;
  /// Larger tensors are cut into pieces of about so many bytes, between rows; 0: they are not.
  std::size_t partition_bytes = 0;
  /// Vectors and tensors of fewer than `exact_below` elements travel exactly, in buckets of their
  /// own: their errors hurt most and their bytes count least. Otherwise all travel alike.
  bool compress = false;
  std::size_t exact_below = kCodecMinElements;
};

/// The buckets of a profile and which layers they depend on. They are in the order in which
/// backward completes them, which is the reverse of the order in which forward needs them; with
/// local steps, those of each fragment are.
struct StepPlan {
  std::vector<BucketShape> buckets;
  /// By bucket: the first layer that has a gradient in it, after whose backward it may leave and
  /// before whose forward it must have come. Never ascends, with local steps within a fragment.
  std::vector<std::size_t> first_layer;
  /// By layer: the buckets that hold its parameters.
  std::vector<std::vector<std::size_t>> needs;
  /// By bucket: the fragment that it belongs to, of local steps; otherwise 0.
  std::vector<std::size_t> fragment_of;

  std::size_t elements() const;
};

StepPlan plan_step(const LayerProfile& profile, const StepPlanOptions& options = {});

/// What travels when ranks average parameters every so many steps: the tensors are dealt out to
/// `fragments` as LocalSgd does (plan_fragments()), and those of a fragment leave in buckets of
/// kBundleLimits; of the options only what concerns codecs counts.
StepPlan plan_local_steps(const LayerProfile& profile, std::int64_t fragments,
                          const StepPlanOptions& options = {});

}  // namespace gradwire
