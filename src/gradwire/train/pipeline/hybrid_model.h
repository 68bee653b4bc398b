#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <torch/torch.h>

#include "gradwire/host/wait_meter.h"
#include "gradwire/pipeline/runner.h"
#include "gradwire/train/pipeline/hybrid_stages.h"
#include "gradwire/train/pipeline/pipeline.h"
#include "gradwire/train/pipeline/pipeline_stages.h"

namespace gradwire {

/// This rank's part of a model whose layers, or their weights, are divided over ranks: what
/// Pipeline's documentation says. With one stage it is the trainer of tensor-parallel, spatial and
/// tied models.
class HybridModel {
 public:
  using Options = Pipeline::Options;
  using StepOptions = Pipeline::StepOptions;

  HybridModel(const Layers& layers, Options options);
  LossSum train_step(const torch::Tensor& inputs, const torch::Tensor& targets,
                     const StepOptions& step);
  void finish();
  torch::Tensor evaluate(const torch::Tensor& inputs, std::int64_t samples = -1);
  const std::vector<LocalStage>& stages() const { return own_.stages; }
  bool has_first_stage() const { return own_.stages.front().stage == 0; }
  bool has_last_stage() const;
  std::int64_t steps() const { return steps_; }
  step::StepStats stats() const;
  std::string describe() const { return own_.description; }
  std::vector<TensorPiece> pieces(bool make_states);
  void loaded();
  void resume_at(std::int64_t step) { steps_ = step; }
  std::vector<exchange::Exchange*> feedback();

 private:
  /// A schedule for some number of micro-batches.
  struct Run {
    pipeline::PipelineSchedule schedule;
    std::unique_ptr<pipeline::StageTransfers> transfers;
    std::unique_ptr<pipeline::PipelineRunner> runner;
  };

  Run& run_for(std::int64_t samples, bool trains);
  /// The number of micro-batches.
  int parts_of(std::int64_t samples) const {
    return static_cast<int>(std::min<std::int64_t>(options_.micro_batches, samples));
  }
  std::vector<double> parts_of_replicas(std::int64_t samples) const;
  void check_parts(std::int64_t samples) const;
  std::int64_t padded(std::int64_t samples) const;
  std::function<double()> count_of(const MicroBatches& batch);
  std::vector<PipelineStages::Step> steps_of(const Run& run, const torch::Tensor& inputs,
                                             const torch::Tensor& targets, std::int64_t samples);
  void finish_last_run();
  void begin_work(const torch::Tensor& inputs);
  StageUpdate& update(pipeline::Stage stage) const;
  void add_tied_gradients() const;
  void step_together(const BeforeStep& before);
  void clip_and_step(const BeforeStep& before);

  Options options_;
  WaitMeter waits_;
  HybridStages own_;
  Rank rank_ = 0;
  int ranks_ = 1;
  EdgeShapes shapes_;  ///< Empty before the first batch.
  std::unique_ptr<PipelineStages> work_;
  std::map<std::pair<int, bool>, Run> runs_;  ///< By micro-batches, and if it trains.
  Run* last_run_ = nullptr;
  std::int64_t steps_ = 0;
};

}  // namespace gradwire
