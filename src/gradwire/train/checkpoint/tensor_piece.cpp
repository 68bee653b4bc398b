#include "gradwire/train/checkpoint/tensor_piece.h"

namespace gradwire {

void copy_shared(const BoxRange& from_range, const torch::Tensor& from, const BoxRange& to_range,
                 const torch::Tensor& to) {
  for (const SharedRun& run : shared_runs(from_range, to_range)) {
    to.narrow(0, run.in_second, run.count).copy_(from.narrow(0, run.in_first, run.count));
  }
}

}  // namespace gradwire
