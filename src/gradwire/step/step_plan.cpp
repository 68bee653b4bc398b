#include "gradwire/step/step_plan.h"

#include <algorithm>
#include <limits>

#include <fmt/format.h>

#include "gradwire/step/local_steps.h"

namespace gradwire::step {
namespace {

/// A tensor, or some rows of one.
struct Piece {
  std::size_t layer = 0;
  exchange::UnitTensor tensor;
  bool skip_compression = false;

  std::size_t count() const { return tensor.rows * tensor.columns; }
};

bool skips_compression(const workload::ProfileTensor& tensor, const StepPlanOptions& options) {
  return options.compress &&
         (tensor.shape.size() < 2 || tensor.count() < options.codec_min_elements);
}

/// Number of pieces of a tensor.
std::size_t pieces_of(const workload::ProfileTensor& tensor, const StepPlanOptions& options) {
  if (options.partition_bytes == 0) return 1;
  const std::size_t bytes = tensor.count() * sizeof(float);
  const std::size_t wanted = (bytes + options.partition_bytes - 1) / options.partition_bytes;
  return std::clamp<std::size_t>(wanted, 1, std::max<std::size_t>(tensor.rows(), 1));
}

void add_pieces(std::vector<Piece>& pieces, std::size_t layer,
                const workload::ProfileTensor& tensor, const StepPlanOptions& options) {
  const std::size_t count = pieces_of(tensor, options);
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t begin = tensor.rows() * i / count, end = tensor.rows() * (i + 1) / count;
    Piece& piece = pieces.emplace_back();
    piece.layer = layer;
    piece.skip_compression = skips_compression(tensor, options);
    piece.tensor.name =
        count == 1 ? tensor.name : fmt::format("{}[{}:{}]", tensor.name, begin, end);
    piece.tensor.rows = end - begin;
    piece.tensor.columns = tensor.columns();
  }
}

std::vector<Piece> pieces_of(const workload::LayerProfile& profile,
                             const StepPlanOptions& options) {
  std::vector<Piece> pieces;
  for (std::size_t layer = 0; layer < profile.layers.size(); ++layer) {
    for (const workload::ProfileTensor& tensor : profile.layers[layer].parameters)
      add_pieces(pieces, layer, tensor, options);
  }
  return pieces;
}

void add_bucket(StepPlan& plan, const std::vector<Piece>& pieces,
                const std::vector<std::size_t>& members) {
  const std::size_t number = plan.buckets.size();
  exchange::UnitShape& shape = plan.buckets.emplace_back();
  for (const std::size_t member : members) {
    const Piece& piece = pieces[member];
    shape.skip_compression = piece.skip_compression;
    shape.tensors.push_back(piece.tensor);
    shape.tensors.back().offset = shape.count;
    shape.count += piece.count();
    auto& needs = plan.needs[piece.layer];
    if (needs.empty() || needs.back() != number) needs.push_back(number);
  }
  plan.first_layer.push_back(pieces[members.back()].layer);
}

void add_buckets(StepPlan& plan, const std::vector<Piece>& pieces, const BucketLimits& limits) {
  std::vector<ParameterSize> sizes;
  for (const Piece& piece : pieces)
    sizes.push_back({piece.count() * sizeof(float), piece.skip_compression});
  for (const auto& members : plan_buckets(sizes, limits)) add_bucket(plan, pieces, members);
}

}  // namespace

std::size_t StepPlan::elements() const {
  std::size_t count = 0;
  for (const exchange::UnitShape& bucket : buckets) count += bucket.count;
  return count;
}

StepPlan plan_step(const workload::LayerProfile& profile, const StepPlanOptions& options) {
  StepPlan plan;
  plan.needs.resize(profile.layers.size());
  add_buckets(plan, pieces_of(profile, options), options.limits);
  plan.fragment_of.resize(plan.buckets.size());
  plan.is_root.resize(plan.buckets.size());
  return plan;
}

StepPlan plan_blocks(const workload::LayerProfile& profile, std::size_t min_elements,
                     const StepPlanOptions& options) {
  constexpr std::size_t kAll = std::numeric_limits<std::size_t>::max();
  StepPlan plan;
  plan.needs.resize(profile.layers.size());
  std::vector<Piece> root;
  for (std::size_t layer = 0; layer < profile.layers.size(); ++layer) {
    std::vector<Piece> pieces;
    std::size_t elements = 0;
    for (const workload::ProfileTensor& tensor : profile.layers[layer].parameters) {
      add_pieces(pieces, layer, tensor, {});
      elements += tensor.count();
    }
    if (elements >= min_elements) {
      add_buckets(plan, pieces, {.first_bytes = kAll, .bytes = kAll, .last_bytes = kAll});
    } else {
      root.insert(root.end(), pieces.begin(), pieces.end());
    }
  }
  plan.is_root.resize(plan.buckets.size(), false);
  add_buckets(plan, root, options.limits);
  plan.is_root.resize(plan.buckets.size(), true);
  plan.fragment_of.resize(plan.buckets.size());
  return plan;
}

StepPlan plan_local_steps(const workload::LayerProfile& profile, std::int64_t fragments,
                          const StepPlanOptions& options) {
  const std::vector<Piece> pieces = pieces_of(
      profile, {.compress = options.compress, .codec_min_elements = options.codec_min_elements});
  std::vector<std::int64_t> counts;
  for (const Piece& piece : pieces) counts.push_back(static_cast<std::int64_t>(piece.count()));
  const std::vector<std::size_t> fragment_of = plan_fragments(counts, fragments);
  StepPlan plan;
  plan.needs.resize(profile.layers.size());
  for (std::size_t fragment = 0; fragment < static_cast<std::size_t>(fragments); ++fragment) {
    std::vector<Piece> here;
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      if (fragment_of[i] == fragment) here.push_back(pieces[i]);
    }
    add_buckets(plan, here, kBundleLimits);
    plan.fragment_of.resize(plan.buckets.size(), fragment);
  }
  plan.is_root.resize(plan.buckets.size());
  return plan;
}

}  // namespace gradwire::step
