#pragma once

#include <vector>

#include <torch/torch.h>

#include "gradwire/host/training_host.h"
#include "gradwire/train/data_parallel/data_parallel.h"
#include "gradwire/train/pipeline/stage_update.h"

namespace gradwire {

/// Averages the gradients of a stage over its replicas, each of which has all of its parameters:
/// bucket by bucket, while the backward of the last micro-batch before an update runs. One replica
/// does not communicate.
class ReplicatedGradients : public StageUpdate {
 public:
  void before_forward() override {}
  void after_forward(const std::vector<torch::Tensor>& /*outputs*/) override {}
  bool splits_backward() const override { return true; }
  void wait_for_gradients() override { core_.finish(); }
  TrainingHost& host() const override { return core_.host(); }

 protected:
  /// `optimizer`: makes the optimizers of the buckets, for begin_step(). Null: the derived class
  /// steps the parameters.
  ReplicatedGradients(StageModule& module, const DataParallelism& data, OptimizerFactory optimizer)
      : core_(module,
              {.process_group = data.process_group,
               .bucket_cap_mb = data.options.bucket_cap_mb,
               .broadcast_buffers = false,  // For every micro-batch, it would hold up the pipeline.
               .optimizer = std::move(optimizer),
               .overlap = data.options.overlap,
               .forward_awaits = true,
               .codec = data.options.codec,
               .codec_min_elements = data.options.codec_min_elements,
               .codec_warmup_steps = data.options.codec_warmup_steps,
               .codec_seed = data.options.codec_seed,
               .clock = data.options.clock,
               .trace = data.options.trace},
              /*sequential=*/false) {}

  DataParallelCore& core() { return core_; }

 private:
  DataParallelCore core_;
};

}  // namespace gradwire
