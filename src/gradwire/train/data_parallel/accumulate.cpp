#include "gradwire/train/data_parallel/accumulate.h"

#include "gradwire/base/refuse.h"

namespace gradwire {

std::int64_t micro_batch_size(std::int64_t samples, int steps) {
  if (steps < 1) {
    refuse("accumulation steps must be at least 1, not {}", steps);
  }
  if (samples < steps || samples % steps != 0) {
    refuse(
        "a batch of {} samples per rank is not divisible into {} accumulation steps; "
        "make it a multiple of {}, or pad or drop the last batch",
        samples, steps, steps);
  }
  return samples / steps;
}

}  // namespace gradwire
