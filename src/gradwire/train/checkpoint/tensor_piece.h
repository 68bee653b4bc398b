#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <torch/torch.h>

namespace gradwire {

/// Consecutive elements, in row-major order, of a tensor that is spread over ranks. The pieces of
/// all ranks together hold every element at least once; where several ranks hold one, they agree.
struct TensorPiece {
  std::string name;                 ///< Of the whole: "0.weight", "optimizer.exp_avg.0.weight".
  std::vector<std::int64_t> shape;  ///< Of the whole.
  std::int64_t begin = 0;           ///< The first element that is here.
  torch::Tensor data;               ///< 1-D, contiguous, live memory: loading copies into it.
  /// False: ranks that hold it may differ (statistics of batch norm, say). Rank 0's counts, or the
  /// lowest that has it; resumed on as many ranks, each gets its own back.
  bool common = true;
};

/// What can be saved by many ranks and loaded by as many others: DataParallel, ZeRO. The model's
/// pieces have the module's own names (of a state_dict); the optimiser's are called
/// "optimizer.STATE.PARAMETER", with PyTorch's names of states (exp_avg, exp_avg_sq,
/// momentum_buffer, step).
class Checkpointable {
 public:
  virtual ~Checkpointable() = default;

  /// Completes the step under way first. Parameters that are kept in two precisions come in the
  /// higher one. Optimiser states that an optimiser makes at its first step are made by
  /// this if `make_states` is set (before loading), and left out otherwise while there are none.
  virtual std::vector<TensorPiece> pieces(bool make_states) = 0;

  /// Loading is over: whatever is derived from the pieces (a copy in bf16, say) is made again.
  virtual void loaded() = 0;
};

}  // namespace gradwire
