#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <torch/torch.h>

#include "gradwire/base/box_range.h"

namespace gradwire {

/// Consecutive elements, in row-major order, of a tensor that is sharded over ranks, or of a box of
/// it. The pieces of all ranks together hold every element at least once; replicas of an element
/// are equal, and boxes are equal or disjoint.
struct TensorPiece {
  /// Name of the whole tensor: "0.weight", "optimizer.exp_avg.0.weight".
  std::string name;
  std::vector<std::int64_t> shape;  ///< Shape of the whole tensor.
  std::int64_t begin = 0;           ///< Index of the first element in the tensor, or in the box.
  torch::Tensor data;               ///< 1-D, contiguous, by reference: loading copies into it.
  /// False: replicas may differ (batch norm's statistics, for example). The lowest rank's is saved
  /// as the tensor; resumed on the same number of ranks, each gets its own value back.
  bool common = true;
  /// The box, of a parameter that is divided over the ranks of a layer. Nullopt: the whole tensor.
  std::optional<TensorPart> part = std::nullopt;
  /// A state of the optimizer. Its name does not tell: a layer may be called `optimizer`.
  bool is_state = false;

  /// Which elements of the whole tensor it has.
  BoxRange range() const { return {part.value_or(whole_part(shape)), begin, data.numel()}; }
};

/// After the name of a parameter: the ids of those of its rows that a checkpoint has. Servers had
/// made them (ServedEmbedding).
inline constexpr const char* kMadeIds = ".ids";

/// Returns the parameter that a piece belongs to: "head.weight" of "optimizer.exp_avg.head.weight",
/// or of itself. Empty for an optimizer's name without a parameter.
std::string parameter_of(const std::string& piece);

/// Copies the elements that are in both ranges of one tensor. `from` and `to` have the elements of
/// their ranges, 1-D; converts between types.
void copy_shared(const BoxRange& from_range, const torch::Tensor& from, const BoxRange& to_range,
                 const torch::Tensor& to);

/// A model that can be saved on one number of ranks and loaded on another: DataParallel, ZeRO. The
/// model's pieces have the names of the module's state_dict. Optimizer pieces are named
/// "optimizer.STATE.PARAMETER", with PyTorch's state names (exp_avg, exp_avg_sq, momentum_buffer,
/// step).
class Checkpointable {
 public:
  virtual ~Checkpointable() = default;

  /// Called before pieces(true), with the shapes of the checkpoint's tensors: for a model of which
  /// some depend on the run. Throws Exception(invalid_argument), the same on all ranks, if the
  /// model cannot be one of these.
  virtual void begin_loading(const std::map<std::string, Shape>& /*shapes*/) {}

  /// Completes the pending step, then returns this rank's pieces. Parameters kept in two precisions
  /// are returned in the higher one. If `make_states` is true (before loading), creates optimizer
  /// states that do not exist yet; otherwise they are omitted.
  virtual std::vector<TensorPiece> pieces(bool make_states) = 0;

  /// Called after loading: recomputes everything derived from the pieces, such as a bf16 copy.
  virtual void loaded() = 0;

  /// Called after pieces(false). Returns what else the model goes on from, as JSON: the versions of
  /// servers' shards. The first rank's is saved.
  virtual std::string progress() { return "{}"; }
  /// Called after loaded(), with the number of steps after which the checkpoint was saved, and what
  /// progress() returned then; "{}" if it is of a model without. Collective.
  virtual void resume_at(std::int64_t /*step*/, const std::string& /*progress*/) {}
};

}  // namespace gradwire
