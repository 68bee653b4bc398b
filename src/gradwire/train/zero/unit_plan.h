#pragma once

#include <cstddef>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include <torch/torch.h>

#include "gradwire/host/named_tensor.h"
#include "gradwire/step/bucket_plan.h"

namespace gradwire {

/// Assignment of parameters (by index into the planned list) to flat units.
struct UnitPlan {
  struct Unit {
    std::string name;
    std::vector<std::size_t> members;
    bool root = false;  ///< Stage 3: outside any block, so present during the whole step.
  };
  std::vector<Unit> units;
  /// The units that each block needs.
  std::unordered_map<const torch::nn::Module*, std::vector<std::size_t>> units_of_block;
};

/// Names of parameters that may not be in a unit with any other.
struct UnitSharing {
  std::set<std::string> apart;  ///< They share units with each other only.
  std::set<std::string> alone;  ///< Each is a unit of its own.
};

/// Stages 1 and 2: units are DataParallel's buckets, the last parameters first.
UnitPlan plan_whole_units(const std::vector<NamedTensor>& parameters,
                          const step::BucketLimits& limits, const UnitSharing& sharing = {});

/// Stage 3: plans one unit for each block with parameters of its own, in order of registration
/// (several if types or devices differ, or by `sharing`), then the root units. Blocks are the
/// children of `module` if it is a Sequential, all modules that are a DeclaredBlock, and
/// `declared`. A parameter belongs to its innermost block. It belongs to the root if it is in
/// several blocks, or if its block has fewer than `min_elements`.
UnitPlan plan_block_units(const torch::nn::Module& module,
                          const std::vector<NamedTensor>& parameters,
                          const std::vector<std::shared_ptr<torch::nn::Module>>& declared,
                          const step::BucketLimits& limits, std::int64_t min_elements,
                          const UnitSharing& sharing = {});

}  // namespace gradwire
