#include "gradwire/train/checkpoint/tensor_piece.h"

#include <string_view>

#include "gradwire/checkpoint/consolidate.h"

namespace gradwire {

std::string parameter_of(const std::string& piece) {
  constexpr std::string_view kPrefix = checkpoint::kOptimizerPrefix;
  if (!piece.starts_with(kPrefix)) return piece;
  const auto dot = piece.find('.', kPrefix.size());
  return dot == std::string::npos ? "" : piece.substr(dot + 1);
}

void copy_shared(const BoxRange& from_range, const torch::Tensor& from, const BoxRange& to_range,
                 const torch::Tensor& to) {
  for (const SharedRun& run : shared_runs(from_range, to_range)) {
    to.narrow(0, run.in_second, run.count).copy_(from.narrow(0, run.in_first, run.count));
  }
}

}  // namespace gradwire
