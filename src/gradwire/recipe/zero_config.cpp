#include "gradwire/recipe/zero_config.h"

#include "gradwire/base/error.h"

namespace gradwire {

namespace {

void read_offload(JsonObject json, ZeroConfig& zero) {
  zero.offload_device = json.choice("device", "none", {"none", "nvme"});
  zero.offload_path = json.text("nvme_path", "");
  json.refuse_unknown();
  if ((zero.offload_device == "nvme") == zero.offload_path.empty()) {
    throw Exception(ErrorKind::invalid_argument,
                    "zero.offload_optimizer needs both \"device\": \"nvme\" and \"nvme_path\", a "
                    "folder on a disk, or neither");
  }
}

}  // namespace

ZeroConfig read_zero(JsonObject json) {
  constexpr std::int64_t kMany = 1'000'000'000'000;
  ZeroConfig zero;
  zero.stage = json.integer("stage", zero.stage, 0, 3);
  zero.reduce_bucket_size = json.integer("reduce_bucket_size", zero.reduce_bucket_size, 0, kMany);
  zero.overlap_comm = json.flag("overlap_comm", zero.overlap_comm);
  zero.stage3_prefetch_bucket_size =
      json.integer("stage3_prefetch_bucket_size", zero.stage3_prefetch_bucket_size, 0, kMany);
  zero.stage3_param_persistence_threshold = json.integer(
      "stage3_param_persistence_threshold", zero.stage3_param_persistence_threshold, 0, kMany);
  read_offload(json.object("offload_optimizer"), zero);
  json.refuse_unknown();
  return zero;
}

}  // namespace gradwire
