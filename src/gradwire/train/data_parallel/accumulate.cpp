#include "gradwire/train/data_parallel/accumulate.h"

#include <fmt/format.h>

#include "gradwire/base/error.h"

namespace gradwire {

std::int64_t micro_batch_size(std::int64_t samples, int steps) {
  if (steps < 1) {
    throw Exception(ErrorKind::invalid_argument,
                    fmt::format("accumulation steps must be at least 1, not {}", steps));
  }
  if (samples < steps || samples % steps != 0) {
    throw Exception(
        ErrorKind::invalid_argument,
        fmt::format("a batch of {} samples per rank is not divisible into {} accumulation steps; "
                    "make it a multiple of {}, or pad or drop the last batch",
                    samples, steps, steps));
  }
  return samples / steps;
}

}  // namespace gradwire
