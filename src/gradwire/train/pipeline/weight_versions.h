#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include <torch/torch.h>

#include "gradwire/base/error.h"
#include "gradwire/pipeline/weight_rules.h"

namespace gradwire {

using pipeline::WeightMethod;

/// Where a stage is in the pipeline.
struct StagePlace {
  pipeline::Stage stage = 0;
  int staleness = 0;  ///< Staleness of its gradients, in updates.
};

/// The weights of one stage of an asynchronous pipeline. Before each computation it points the
/// parameters at the weights that the computation must use; between computations they are the
/// newest. Gradients add up on the parameters as always. Not thread-safe.
///
/// A backward reads weights in two ways, and both must give the same values: what autograd saved in
/// the forward (Linear saves a view of the weight's memory), and the parameter itself (Conv2d). So
/// memory that a forward has used is not written before its backward, unless the method wants other
/// values there.
class StageWeights {
 public:
  explicit StageWeights(std::vector<torch::Tensor> parameters);
  virtual ~StageWeights() = default;
  StageWeights(const StageWeights&) = delete;
  StageWeights& operator=(const StageWeights&) = delete;

  virtual void begin(const pipeline::Task& task, std::int64_t step) = 0;
  virtual void end(const pipeline::Task& task, std::int64_t step) = 0;

  /// Called before and after the optimizer changes the parameters, which it may do in place:
  /// autograd's counters of changes are kept, because they would forbid pending backwards.
  virtual void begin_update();
  virtual void end_update();

  /// Called when the pipeline is empty. The next forward starts with the newest weights, as in a
  /// new pipeline.
  virtual void drained() {}

  /// Copies of the weights that exist, the newest included, and the maximum so far.
  virtual int copies() const = 0;
  int max_copies() const { return max_copies_; }

 protected:
  using Tensors = std::vector<torch::Tensor>;

  /// The memory of the parameters now.
  Tensors data() const;
  void point_at(const Tensors& data);
  static Tensors copy_of(const Tensors& data);
  void count_copies();

  Tensors parameters_;

 private:
  std::vector<std::uint32_t> counters_;
  int max_copies_ = 1;
};

/// Makes the weights of a stage; null for flush, and for stages without parameters. `optimizer`
/// steps the parameters and must outlive the result. Throws Exception(invalid_argument) if the
/// method does not support it.
std::unique_ptr<StageWeights> make_stage_weights(WeightMethod method, const StagePlace& place,
                                                 const torch::nn::Module& module,
                                                 torch::optim::Optimizer* optimizer);

}  // namespace gradwire
