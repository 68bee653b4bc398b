#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include <torch/torch.h>

#include "gradwire/host/group.h"
#include "gradwire/pipeline/pipeline_schedule.h"
#include "gradwire/train/pipeline/layers.h"

namespace gradwire {

/// The parameters of a model that share their values (Layers::tie), in the stages of a pipeline.
/// Each of them, a holder, has its own copy and its own gradient, also in stages of one rank: so
/// the gradients are added in the same order, that of the layers, in every cut. Copies with the
/// same values and gradients stay equal under an optimizer that steps each parameter on its own.
/// With ZeRO over replicas of the pipeline, ranks exchange their shards: a tied parameter is a unit
/// of its own, so that the same place in each replica has the same range of it.
/// Not thread-safe.
class TiedParameters {
 public:
  /// `rank`: in the pipeline.
  TiedParameters(const Layers& layers, Rank rank);

  /// Called for each layer of the model, in order, on every rank: gives holders the initial values
  /// of the first. `first_parameter`: the place in the model of the layer's first trainable
  /// parameter. Returns that of the next layer's; a tensor that layers share has one place. Throws
  /// Exception(invalid_argument) that names two holders which differ in shape, type, or in being
  /// trained; or two parameters that are one tensor, in different stages or tied.
  std::size_t add_layer(const std::string& layer, const torch::nn::Module& module,
                        pipeline::Stage stage, Rank owner, std::size_t first_parameter);
  /// Called after the last layer. Throws Exception(invalid_argument) for a name that no layer has.
  void complete();

  /// The tied parameters that are trained, of a stage of this rank whose layers are added.
  std::vector<torch::Tensor> trained(pipeline::Stage stage) const;
  /// Returns the name of the first holder of this parameter's tie; `name` if it is not tied.
  const std::string& first_name(const std::string& name) const;
  /// Places in the model of the trainable parameters that repeat another: all holders but the
  /// first.
  const std::vector<std::size_t>& repeated() const { return repeated_; }

  /// Returns what this rank has of a parameter of its stage, or of the parameter's gradient: all,
  /// or the same range in every stage.
  using Own = std::function<torch::Tensor(pipeline::Stage stage, const torch::Tensor& parameter)>;

  /// Gives each holder the sum of the holders' gradients, in place. Collective over the ranks that
  /// have holders.
  void add_gradients(c10d::ProcessGroup& group, const Own& gradient) const;
  /// Throws Exception(invalid_argument) if holders have different values. Collective as above.
  void check_equal(c10d::ProcessGroup& group, const Own& values) const;

 private:
  struct Holder {
    std::string name;
    pipeline::Stage stage = 0;
    Rank rank = 0;
    int tag = 0;              ///< Tag of messages with its tensor.
    torch::Tensor parameter;  ///< Undefined on other ranks.
  };
  struct Tie {
    std::vector<std::string> names;
    std::vector<Holder> holders;  ///< In the order of the model.
    torch::Tensor first;          ///< The first holder's initial values.
    bool trains = true;
  };
  /// The weak pointer keeps the address from being used again.
  struct Seen {
    std::string name;
    pipeline::Stage stage = 0;
    c10::weak_intrusive_ptr<c10::TensorImpl> tensor;
    std::size_t place = 0;  ///< Among the trainable parameters of the model.
  };

  void check_apart(const Seen& parameter) const;
  void check_separate(const Tie& tie, const Seen& parameter) const;
  void add_holder(Tie& tie, Holder holder, const torch::Tensor& parameter) const;
  std::vector<torch::Tensor> exchange(c10d::ProcessGroup& group, const Tie& tie,
                                      const Own& own) const;

  Rank rank_;
  std::vector<Tie> ties_;
  std::vector<Seen> seen_;  ///< All parameters, until complete().
  std::vector<std::size_t> repeated_;
};

}  // namespace gradwire
