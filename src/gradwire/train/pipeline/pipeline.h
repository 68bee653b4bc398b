#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <torch/torch.h>

#include "gradwire/host/group.h"
#include "gradwire/pipeline/simulation.h"
#include "gradwire/step/step_stats.h"
#include "gradwire/train/checkpoint/tensor_piece.h"
#include "gradwire/train/optim/optimizer_factory.h"
#include "gradwire/train/pipeline/layers.h"
#include "gradwire/train/pipeline/pipeline_loss.h"
#include "gradwire/train/zero/zero_module.h"

namespace gradwire {

namespace exchange {
class Exchange;
}
class HybridModel;
struct LocalStage;

/// Codecs of what passes between two ranks of a pipeline, each way: names of codecs of single
/// values (docs/compression.md), or "none". One name is that of all boundaries between stages;
/// "int8,none,bf16" has one for each. What a skip connection brings has the codec of the boundary
/// before its stage. There is no error feedback: the error of one sample's activation says nothing
/// about the next sample's.
struct ActivationCodecs {
  std::string forward = "none";   ///< Codecs of activations.
  std::string backward = "none";  ///< Codecs of their gradients.
};

/// Data parallelism of a pipeline: replicas of it, each of which trains on its part of a batch.
/// Asynchronous schedules have whole stages only, zero_stage 0.
struct DataParallelism {
  /// The ranks that have the same stages, one of each replica (ParallelMesh::data()). Null: one
  /// replica.
  ProcessGroup process_group;
  /// 0: each replica has whole stages. 1 to 3: ZeRO over the replicas. Stage 1 reduces gradients
  /// once a step; 2 once per micro-batch; 3 also gathers the parameters twice per micro-batch.
  int zero_stage = 0;
  /// How gradients and parameters are exchanged: codec, sizes of units, overlap, trace. A pipeline
  /// sets the group, stage, optimizer, blocks, units, and the buffers' broadcasts. Throws
  /// Exception(invalid_argument) with max_grad_norm, offload_optimizer or parameters.
  ZeroOptions options;
};

/// Pipeline-parallel training: consecutive layers of a model are the stages, and each rank of the
/// group has one, or several. A batch is cut into micro-batches, which pass through the stages one
/// after the other while a schedule keeps all ranks busy (docs/pipeline.md).
///
///     gradwire::Pipeline model(layers, {.process_group = group,
///                                       .micro_batches = 16,
///                                       .optimizer = make_adam,
///                                       .loss = gradwire::cross_entropy_sum()});
///     for (const auto& batch : loader) {
///       const gradwire::LossSum loss = model.train_step(batch.data, batch.target);
///       if (loss.count > 0) std::cout << loss.mean() << '\n';  // the rank with the last stage
///     }
///
/// Parameters after any number of steps are bitwise those of one rank with the same micro-batches,
/// for every schedule and cut: weight gradients are added in the order of the micro-batches, norms
/// in the order of the parameters, and random numbers belong to a sample's micro-batch and a layer.
/// Batch norm uses the statistics of a micro-batch.
///
/// The layers of a stage are on one device; batches and messages are copied there. Errors: throws
/// Exception on all ranks; the group is unusable afterwards. Not thread-safe.
class Pipeline final : public Checkpointable {
 public:
  struct Options {
    ProcessGroup process_group;  ///< The ranks of one pipeline.
    DataParallelism data;        ///< Replicas of the pipeline, on other ranks. Default: none.
    /// The ranks that share each layer's weights, and each sample's space (ParallelMesh::tensor(),
    /// spatial()), if the layers are parallel ones (docs/parallel.md). All of them call everything
    /// alike, with the same batches. Null: this rank alone.
    ProcessGroup tensor;
    ProcessGroup spatial;
    int micro_batches = 8;
    /// A schedule of `gradwire schedule pipeline` ("gpipe", "zero_bubble:8", "interleaved:2").
    std::string schedule = "1f1b";
    /// Which weights an asynchronous schedule uses (docs/pipeline.md): with "pipedream" "stash",
    /// "spectrain", "lwp_v", "lwp_w", "spike_compensation" or "newest", with "2bw" "2bw". Empty:
    /// "stash" or "2bw"; "flush" with synchronous schedules.
    std::string weights;
    /// For schedules that depend on times; only their ratios matter. Empty: all equal, and
    /// transfers that take no time.
    pipeline::PipelineCosts costs;
    /// Number of layers of each stage. Empty: stages of about equally many parameters.
    std::vector<std::size_t> cut;
    OptimizerFactory optimizer;
    /// Clips gradients to this norm over all parameters; every step then waits for all ranks. Not
    /// with asynchronous schedules.
    std::optional<double> clip_norm;
    /// Keeps only the input of a stage for each micro-batch, and computes the stage's forward a
    /// second time in its backward (Chen et al., arXiv:1604.06174): about a third more compute,
    /// and the same bits. With asynchronous schedules for the weights "stash" and "2bw".
    bool recompute = false;
    /// Codecs of activations and their gradients on the way to another rank, in training. Needs
    /// activations of float32.
    ActivationCodecs activation_codec;
    PipelineLoss loss;
    std::uint64_t seed = 0;  ///< Seed of dropout, and of codecs of activations.
  };

  /// The inputs of a step beside tensors.
  struct StepOptions {
    /// Number of samples of this replica's batch; -1: that of the inputs or targets.
    std::int64_t samples = -1;
    /// Number of samples of the next call of train_step, which then starts its receives during this
    /// one if the schedule is synchronous and the group is one of gradwire; -1: unknown.
    std::int64_t next_samples = -1;
    BeforeStep before;  ///< Sets the optimizers' learning rates for this step. May be empty.
  };

  /// Makes this rank's layers; the memory needed is that of its stages and one layer. Collective
  /// over all ranks of all replicas. Throws Exception(invalid_argument), also if ranks disagree
  /// about layers or options. Ties (Layers::tie) need a synchronous schedule, and an optimizer that
  /// steps each parameter on its own.
  Pipeline(const Layers& layers, Options options);
  ~Pipeline() override;

  /// Runs forward and backward over a batch in micro-batches, and one step of the optimizers. The
  /// gradient is that of the mean loss over the batches of all replicas together, and random
  /// numbers are those of one batch, of which all replicas have equal parts. The rank with the
  /// first stage needs `inputs`, the one with the last stage `targets`; all need the number of
  /// samples, from either tensor or from `step.samples`. With fewer samples than micro-batches
  /// there are as many micro-batches as samples. Returns the losses of this replica's batch, on the
  /// rank with the last stage.
  ///
  /// With replicas and a synchronous schedule, the optimizers' step may complete in the next
  /// forward: call finish() before you read parameters.
  ///
  /// With asynchronous schedules the optimizers step as their schedule says, and the last
  /// micro-batches are still under way at the end: on a group of another backend than gradwire's,
  /// no other pipeline may run until finish(). With 2bw, a batch of another number of
  /// micro-batches drains the replica's pipeline.
  ///
  /// With pipedream and with ZeRO 2 and 3, all replicas must have the same number of micro-batches.
  /// Otherwise all ranks throw before any of them is sent.
  LossSum train_step(const torch::Tensor& inputs, const torch::Tensor& targets,
                     const StepOptions& step);
  LossSum train_step(const torch::Tensor& inputs, const torch::Tensor& targets) {
    return train_step(inputs, targets, StepOptions());
  }

  /// Completes the pending step of replicas, and gives all of them the buffers of the first (batch
  /// norm's statistics). Drains an asynchronous pipeline: its pending backwards and updates run, so
  /// that all stages have seen the same micro-batches. Waits until all messages are sent.
  /// Collective over all ranks of all replicas. Checkpoints call it. Call it after the last step: a
  /// rank that leaves with messages in flight fails the others.
  void finish();

  /// Returns the outputs, in evaluation mode, on the rank with the last stage; undefined elsewhere.
  /// The inputs pass in micro-batches, as in training, so that bits depend on neither stages nor
  /// cut. Each replica evaluates its own inputs, with its own buffers: call finish() before for
  /// those of the first. Collective over the ranks of the pipeline; over its replicas too with ZeRO
  /// 3, which gathers parameters, and with asynchronous schedules, whose updates are drained.
  torch::Tensor evaluate(const torch::Tensor& inputs, std::int64_t samples = -1);

  /// This rank's stages.
  const std::vector<LocalStage>& stages() const;
  bool has_first_stage() const;
  bool has_last_stage() const;
  std::int64_t steps() const;

  /// Accumulated cost of communication in train_step(): `exposed` is the time in which this rank
  /// waited for others, which a bubble is part of; the other figures are those of replicas.
  step::StepStats stats() const;

  /// A line per stage: its rank, its layers and parameters.
  std::string describe() const;

  /// Named as in the whole model: a checkpoint can be loaded with any number of stages. Collective:
  /// calls finish().
  std::vector<TensorPiece> pieces(bool make_states) override;
  void loaded() override;
  void resume_at(std::int64_t step, const std::string& progress) override;
  /// Returns, by stage of this rank, the exchange whose state (error-feedback residuals) a
  /// checkpoint must hold in addition to pieces(); empty without a codec. Call between steps.
  std::vector<exchange::Exchange*> feedback();

 private:
  std::unique_ptr<HybridModel> model_;
};

}  // namespace gradwire
