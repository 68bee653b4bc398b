#pragma once

#include <cstddef>
#include <vector>

#include "gradwire/exchange/exchange.h"
#include "gradwire/step/bucket_plan.h"
#include "gradwire/workload/layer_profile.h"

namespace gradwire::step {

/// How a profile's gradients become buckets.
struct StepPlanOptions {
  BucketLimits limits;
  /// Larger tensors are cut into pieces of about this size, between rows; 0: not cut.
  std::size_t partition_bytes = 0;
  /// If true, vectors and tensors of fewer than `codec_min_elements` elements are sent
  /// uncompressed, in separate buckets: they are most sensitive to errors and have the fewest
  /// bytes. If false, all tensors are treated alike.
  bool compress = false;
  std::size_t codec_min_elements = kCodecMinElements;
};

/// The buckets of a profile and the layers they depend on. Buckets are in the order in which
/// backward completes them, which is the reverse of the order in which forward needs them. With
/// local steps, this holds within each fragment.
struct StepPlan {
  std::vector<exchange::UnitShape> buckets;
  /// By bucket: the first layer that has a gradient in it. The bucket may be started after that
  /// layer's backward and must be complete before its forward. Never ascends; with local steps,
  /// within a fragment.
  std::vector<std::size_t> first_layer;
  /// By layer: the buckets that hold its parameters.
  std::vector<std::vector<std::size_t>> needs;
  /// By bucket: its fragment with local steps; otherwise 0.
  std::vector<std::size_t> fragment_of;
  /// By bucket: ZeRO stage 3 keeps it from the beginning of forward to the end of backward.
  std::vector<bool> is_root;

  std::size_t elements() const;
};

StepPlan plan_step(const workload::LayerProfile& profile, const StepPlanOptions& options = {});

/// Plans the units of ZeRO stage 3: one for each layer with at least `min_elements`, in order, then
/// the root units, which are buckets of all other layers.
StepPlan plan_blocks(const workload::LayerProfile& profile, std::size_t min_elements,
                     const StepPlanOptions& options = {});

/// Plans buckets for local steps. Tensors are distributed to `fragments` as by LocalSgd
/// (plan_fragments()), and each fragment is cut into buckets of kBundleLimits. Of the options only
/// those of codecs are used.
StepPlan plan_local_steps(const workload::LayerProfile& profile, std::int64_t fragments,
                          const StepPlanOptions& options = {});

}  // namespace gradwire::step
