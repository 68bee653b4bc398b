#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <torch/torch.h>

#include "gradwire/pipeline/runner.h"
#include "gradwire/train/optim/optimizer_factory.h"
#include "gradwire/train/pipeline/activation_codec.h"
#include "gradwire/train/pipeline/layers.h"
#include "gradwire/train/pipeline/pipeline_loss.h"
#include "gradwire/train/pipeline/split_backward.h"
#include "gradwire/train/pipeline/stage_edges.h"
#include "gradwire/train/pipeline/stage_update.h"

namespace gradwire {

/// One stage of a rank: its layers, and what steps their parameters.
struct LocalStage {
  pipeline::Stage stage = 0;
  std::size_t first_layer = 0;
  std::shared_ptr<StageModule> module;
  c10::Device device = torch::kCPU;  ///< Device of its parameters. Inputs are copied there.
  std::unique_ptr<StageUpdate> update;
  bool is_tied = false;  ///< Its gradients are complete with those of other stages (Layers::tie).
};

/// A batch in parts. Only the first stage uses inputs, only the last one targets.
struct MicroBatches {
  std::vector<std::int64_t> samples;   ///< Number of each.
  std::vector<std::int64_t> first;     ///< Index in the batch of each one's first sample.
  std::vector<torch::Tensor> inputs;   ///< Empty if no stage of this rank uses them.
  std::vector<torch::Tensor> targets;  ///< Empty if no stage of this rank uses them.

  std::int64_t all_samples() const { return first.back() + samples.back(); }
};

/// The device of a stage's parameters and buffers; the host if it has none. Throws
/// Exception(invalid_argument) if it has several.
c10::Device device_of(const StageModule& module);

/// Cuts `samples` into `parts` that differ by at most one; the larger ones come first.
MicroBatches micro_batches_of(std::int64_t samples, int parts, const torch::Tensor& inputs,
                              const torch::Tensor& targets);

/// Each micro-batch as a batch of its own.
std::vector<MicroBatches> one_by_one(const MicroBatches& batch);

/// A rank's stages in libtorch: forward, gradients of inputs and of weights, one micro-batch at a
/// time. Gradients add up on the parameters. Random numbers (dropout) depend on the seed, the step,
/// the micro-batch's first sample, counted over all replicas, and the layer alone, so that they are
/// the same in every cut.
/// Not thread-safe.
class PipelineStages final : public pipeline::StageWork {
 public:
  struct Options {
    PipelineLoss loss;
    std::uint64_t seed = 0;
    /// Keeps only a stage's input from forward to backward, and computes the rest again.
    bool recompute = false;
    ActivationCodecs codecs;   ///< In training, between ranks.
    bool step_at_once = true;  ///< A stage that is not tied steps when its gradients are complete.
    /// The rule of asynchronous weights, if its backwards use others than their forwards.
    std::string other_weights;
    TraceRecorder* trace = nullptr;  ///< Records the tasks; may be null.
  };

  /// A step of the runner.
  struct Step {
    MicroBatches batch;
    std::int64_t samples_before = 0;  ///< In the batches of the replicas before this one.
    std::int64_t number = 0;          ///< The training step, for random numbers and errors.
    /// Waits for the number of losses of all replicas, and returns the mean's divisor.
    std::function<double()> count;
    BeforeStep before;
  };
  /// All references must outlive it. `shapes` has those of `edges` before the first step.
  PipelineStages(const std::vector<LocalStage>& stages, const StageEdges& edges,
                 const EdgeShapes& shapes, int all_stages, Options options);

  /// Called before the next steps of `runner`, which has run all before. With a schedule that does
  /// not train, gradients are not computed. `next_samples`: size of the step after these, whose
  /// receives then start early; -1: unknown. Throws Exception(invalid_argument) if the last call
  /// announced another number.
  void begin(const pipeline::PipelineRunner& runner, std::vector<Step> steps,
             std::int64_t next_samples = -1);
  /// The loss of the forwards since begin(), over this replica's batch.
  LossSum loss() const { return loss_; }
  /// By micro-batch: outputs of the last stage, after a forward-only step.
  std::vector<torch::Tensor> outputs() { return std::move(outputs_); }

  /// Runs the forward of one stage on its inputs, with the random numbers of that micro-batch.
  StageValues forward(const LocalStage& stage, StageValues inputs, std::int64_t first_sample,
                      std::int64_t number) const;

  std::optional<LentSpan> receive_buffer(const pipeline::Message& message,
                                         std::int64_t step) override;
  void compute(const pipeline::Task& task, std::int64_t step) override;
  LentConstSpan output(const pipeline::Message& message, std::int64_t step) override;
  void sent(const pipeline::Message& message, std::int64_t step) override;
  void update(pipeline::Stage stage, std::int64_t step) override;
  /// The number of the training step, which counts all schedules' steps and those before a
  /// checkpoint.
  std::int64_t number_of(std::int64_t step) const override;

 private:
  using Place = std::tuple<std::int64_t, pipeline::Stage, pipeline::MicroBatch>;
  using Key = std::pair<pipeline::Message, std::int64_t>;

  const LocalStage& local(pipeline::Stage stage) const;
  bool is_last(pipeline::Stage stage) const { return stage + 1 == all_stages_; }
  void check_announced(const pipeline::PipelineRunner& runner, const std::vector<Step>& steps);
  void compute_forward(const pipeline::Task& task, std::int64_t step);
  void compute_backward(const pipeline::Task& task, std::int64_t step);
  StageValues forward(const pipeline::Task& task, const StageValues& inputs, const Step& step,
                      bool counts);
  StageValues inputs_of(const pipeline::Task& task, std::int64_t step);
  void send_on(const pipeline::Task& task, std::int64_t step, const StageValues& outputs);
  std::vector<torch::Tensor> output_gradients(const pipeline::Task& task, std::int64_t step);
  void send_back(const pipeline::Task& task, std::int64_t step,
                 const std::vector<torch::Tensor>& gradients);
  void start_backward(const Place& place, const StageValues& inputs, const StageValues& outputs);
  SplitBackward& backward_of(const pipeline::Task& task, std::int64_t step);
  void complete_backward(const Place& place);
  void keep_inputs(const Place& place, const StageValues& inputs,
                   const std::vector<std::int64_t>& versions);
  void compute_task(const pipeline::Task& task, std::int64_t step);
  /// The codec of a message; null if it is sent as it is.
  const ActivationCodec* codec_of(const pipeline::Message& message) const;
  std::uint64_t codec_seed(const pipeline::Message& message, std::int64_t step) const;
  bool stays(const pipeline::Message& message) const;
  const std::vector<BoundaryShape>& shapes_of(const pipeline::Message& message) const;
  std::int64_t samples_of(const pipeline::Message& message, std::int64_t step) const;
  void check_shapes(const pipeline::Message& message,
                    const std::vector<torch::Tensor>& tensors) const;
  std::vector<torch::Tensor> take(const pipeline::Message& message, std::int64_t step);
  void put(const pipeline::Message& message, std::int64_t step,
           const std::vector<torch::Tensor>& tensors);

  const std::vector<LocalStage>& stages_;
  const StageEdges& edges_;
  const EdgeShapes& shapes_;
  int all_stages_;
  Options options_;
  std::vector<ActivationCodec> forward_codecs_, backward_codecs_;  ///< By boundary.
  const pipeline::PipelineSchedule* schedule_ = nullptr;
  std::map<std::int64_t, Step> steps_;  ///< By the runner's number: those with tasks left.
  std::int64_t announced_ = -1;         ///< Samples of the next step; -1: unknown.
  LossSum loss_;
  std::vector<torch::Tensor> outputs_;
  std::map<Place, SplitBackward> backwards_;
  std::map<Place, StageValues> inputs_;  ///< Kept from forward to backward with recompute.
  /// Messages by (message, step): receive buffers and packed sends, encoded if the message has a
  /// codec. Tensors passed to a stage of this rank are stored unpacked.
  std::map<Key, std::vector<torch::Tensor>> tensors_;
};

}  // namespace gradwire
