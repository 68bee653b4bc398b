#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include <torch/torch.h>

#include "gradwire/data/data_set.h"
#include "gradwire/host/group.h"
#include "gradwire/train/optim/mixed_precision.h"

namespace gradwire::recipe {

struct Evaluation {
  std::int64_t images = 0;  ///< Samples; for text, characters: everything that has a target.
  double accuracy = 0;      ///< 0 .. 1.
  double loss = 0;          ///< Mean negative log-likelihood.
};

/// A classifier: returns log-probabilities of a batch. May be collective, as with ZeRO stage 3, and
/// undefined on ranks of a pipeline that do not have the last stage.
using Classifier = std::function<torch::Tensor(const torch::Tensor& inputs)>;

/// All ranks, and those along the data axis of their mesh.
struct EvaluationRanks {
  c10d::ProcessGroup& world;
  c10d::ProcessGroup& data;
  int alike = 1;  ///< Ranks with the same outputs of the same samples.
};

/// Evaluates `forward` of `modules` on `data`: each sample once, each replica on its part. Batches
/// have `batch_size` samples, a replica's part in training, so that evaluation fits into memory as
/// training did. The result is the same on every rank. Collective; every rank calls `forward`
/// equally often. Restores the modules' training mode. `precision` is that of their parameters.
Evaluation evaluate(const std::vector<std::shared_ptr<torch::nn::Module>>& modules,
                    const Classifier& forward, const DataSet& data, std::int64_t batch_size,
                    const EvaluationRanks& ranks, Precision precision = Precision::fp32);

}  // namespace gradwire::recipe
