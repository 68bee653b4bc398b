#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <torch/torch.h>

#include "gradwire/data/data_set.h"
#include "gradwire/host/group.h"
#include "gradwire/host/servers/served_embedding.h"
#include "gradwire/host/training_host.h"
#include "gradwire/recipe/train_config.h"
#include "gradwire/step/step_host.h"
#include "gradwire/trace/trace.h"
#include "gradwire/train/checkpoint/tensor_piece.h"
#include "gradwire/train/data_parallel/data_parallel.h"
#include "gradwire/train/optim/mixed_precision.h"
#include "gradwire/train/parallel_mesh.h"
#include "gradwire/train/servers/served_local_steps.h"
#include "gradwire/train/servers/served_module.h"
#include "gradwire/train/zero/zero_module.h"

namespace gradwire::recipe {

/// Learning rates by parameter group (optimizers.h).
using LearningRates = std::vector<double>;

/// A classifier that is trained on several ranks as configured.
class TrainedModel {
 public:
  virtual ~TrainedModel() = default;

  /// Runs one step on this replica's part of a batch. `is_last`: no step follows directly. Returns
  /// the mean loss of that part; 0 on ranks that do not compute it.
  virtual double train_step(const Batch& batch, const LearningRates& rates, bool is_last) = 0;
  /// A recent loss, for the progress display of rank 0.
  virtual double recent_loss() = 0;
  /// Completes the pending step.
  virtual void finish() = 0;

  /// Returns log-probabilities, in evaluation mode; undefined on ranks without outputs. Collective
  /// over the ranks that share a replica.
  virtual torch::Tensor evaluate(const torch::Tensor& inputs) = 0;
  /// Gives all replicas the buffers of the first.
  virtual void synchronize_buffers() = 0;

  /// This rank's layers.
  virtual std::vector<std::shared_ptr<torch::nn::Module>> modules() = 0;
  virtual step::StepStats stats() = 0;
  virtual LossScaler* scaler() { return nullptr; }
  /// The connection to parameter servers; null without.
  virtual ServedModule* served() { return nullptr; }
  /// The table whose rows servers have; null without.
  virtual ServedEmbedding* table() { return nullptr; }
  /// Number of batches that are prefetched before the one that is trained.
  virtual std::int64_t batches_ahead() const { return 0; }
  /// Announces a batch, in the order in which they are trained.
  virtual void prefetch(const Batch& /*batch*/) {}
  /// For saving and loading.
  virtual Checkpointable& state() = 0;
  /// The exchanges whose state (error-feedback residuals) belongs to the checkpoint. Call between
  /// steps.
  virtual std::vector<exchange::Exchange*> feedback() = 0;
  /// Writes the whole model to a file of rank 0. Collective.
  virtual void save(const std::filesystem::path& path, const std::string& description) = 0;
};

/// A model of which every rank has all layers: trained with DataParallel, or one of Zero's stages.
class WholeModel : public TrainedModel {
 public:
  /// `config` and `trace` (which may be null) must outlive it.
  WholeModel(const TrainConfig& config, ProcessGroup group, TraceRecorder* trace);

  double train_step(const Batch& batch, const LearningRates& rates, bool is_last = false) override;
  double recent_loss() override { return loss_; }
  void finish() override { host().finish(); }
  void synchronize_buffers() override { host().synchronize_buffers(); }
  step::StepStats stats() override { return host().stats(); }
  std::vector<std::shared_ptr<torch::nn::Module>> modules() override { return {module().ptr()}; }
  LossScaler* scaler() override { return scaler_ ? &*scaler_ : nullptr; }
  void save(const std::filesystem::path& path, const std::string& description) override;
  std::vector<exchange::Exchange*> feedback() override;

  virtual torch::Tensor operator()(const torch::Tensor& inputs) = 0;
  torch::Tensor evaluate(const torch::Tensor& inputs) override { return (*this)(inputs); }

  virtual torch::nn::Sequential& module() = 0;
  virtual TrainingHost& host() = 0;
  SyncControl& sync_control() { return host(); }

 protected:
  /// Clips the gradients as configured, and steps with these learning rates. `scaler`, if not null,
  /// has scaled the loss; it is told if gradients were finite. Returns false if they were not; the
  /// step is then skipped.
  virtual bool step(const LearningRates& rates, LossScaler* scaler) = 0;
  /// Call before the last backward of a step. Returns true if the step is taken in backward, so
  /// that step() must not be called.
  virtual bool step_in_backward(const LearningRates& /*rates*/) { return false; }
  /// Completes the step, and gathers sharded parameters until the next step. Collective.
  virtual torch::nn::Sequential& whole_module() = 0;

 private:
  int parts_of(std::int64_t samples) const;

  const TrainConfig& config_;
  ProcessGroup group_;
  TraceRecorder* trace_;
  std::optional<LossScaler> scaler_;  ///< Present with fp16.
  double loss_ = 0;
};

/// Options of a Zero with this configuration. `config` and `trace` (which may be null) must outlive
/// it.
ZeroOptions zero_options(const TrainConfig& config, ProcessGroup group, TraceRecorder* trace);

/// `config` and `trace` (which may be null) must outlive it. Collective.
std::unique_ptr<WholeModel> make_trained_model(const TrainConfig& config,
                                               torch::nn::Sequential module, ProcessGroup group,
                                               TraceRecorder* trace);

/// The exchange with servers of a run with local steps, of a model that is trained without any.
/// `trace` (which may be null) must outlive it. Collective.
std::unique_ptr<ServedLocalSteps> make_served_local_steps(const TrainConfig& config,
                                                          torch::nn::Module& module,
                                                          ProcessGroup group, TraceRecorder* trace);

/// A pipeline of the configured model. Initial weights come from torch's default generator, as
/// those of make_model(). `config` and `trace` (which may be null) must outlive it. Collective over
/// the mesh.
std::unique_ptr<TrainedModel> make_pipeline_model(const TrainConfig& config,
                                                  const ParallelMesh& mesh, TraceRecorder* trace);

}  // namespace gradwire::recipe
