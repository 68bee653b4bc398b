#pragma once

#include <cstdint>
#include <functional>

#include <torch/torch.h>

#include "gradwire/data/data_set.h"
#include "gradwire/train/group.h"
#include "gradwire/train/optim/mixed_precision.h"

namespace gradwire::recipe {

struct Evaluation {
  std::int64_t images = 0;  ///< Samples; for text, characters: everything that has a target.
  double accuracy = 0;      ///< 0 .. 1.
  double loss = 0;          ///< Mean negative log-likelihood.
};

/// A classifier: returns log-probabilities of a batch. May be collective, as with ZeRO stage 3.
using Classifier = std::function<torch::Tensor(const torch::Tensor& inputs)>;

/// Evaluates `forward` of `module` on `data`: each sample once, each rank on its part. Batches have
/// `batch_size` samples, a rank's part in training, so that evaluation fits into memory as training
/// did. The result is the same on every rank. Collective; every rank calls `forward` equally often.
/// Restores the module's training mode. `precision` is that of its parameters.
Evaluation evaluate(torch::nn::Module& module, const Classifier& forward, const DataSet& data,
                    std::int64_t batch_size, c10d::ProcessGroup& group,
                    Precision precision = Precision::fp32);

}  // namespace gradwire::recipe
