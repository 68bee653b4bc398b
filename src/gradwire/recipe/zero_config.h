#pragma once

#include <cstdint>
#include <string>

#include "gradwire/recipe/json_object.h"

namespace gradwire {

/// ZeRO in a configuration; docs/zero.md explains the keys, which have the names and meanings of
/// DeepSpeed's "zero_optimization".
struct ZeroConfig {
  std::int64_t stage = 0;  ///< 0: DataParallel.
  /// Maximum elements of a unit in stages 1 and 2; 0: parallel.bucket_cap_mb applies.
  std::int64_t reduce_bucket_size = 0;
  bool overlap_comm = true;
  std::int64_t stage3_prefetch_bucket_size = 1'000'000;      ///< Elements.
  std::int64_t stage3_param_persistence_threshold = 10'000;  ///< Elements of a block.
  /// "none", or "nvme": optimizer states are in files in the folder `nvme_path`.
  std::string offload_device = "none";
  std::string offload_path;
};

/// Throws Exception(invalid_argument) that names the key.
ZeroConfig read_zero(JsonObject json);

}  // namespace gradwire
