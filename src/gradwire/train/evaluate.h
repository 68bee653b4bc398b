#pragma once

#include <cstdint>
#include <functional>

#include <torch/torch.h>

#include "gradwire/data/data_set.h"
#include "gradwire/train/group.h"
#include "gradwire/train/precision.h"

namespace gradwire {

struct Evaluation {
  std::int64_t images = 0;  ///< Or, of a text, characters: whatever has a target.
  double accuracy = 0;      ///< 0 .. 1.
  double loss = 0;          ///< Mean negative log-likelihood.
};

/// A classifier: log-probabilities of a batch. May be collective, as with ZeRO's third stage.
using Classifier = std::function<torch::Tensor(const torch::Tensor& inputs)>;

/// Evaluates `forward` of `module` on `data`, each rank on its part, each sample once, and
/// `batch_size` of them at a time: a rank's part in training, so that it fits into memory as
/// training did. The same result on every rank. Collective; every rank calls `forward` equally
/// often. Leaves the module in the mode it was in. `precision` is that of its parameters.
Evaluation evaluate(torch::nn::Module& module, const Classifier& forward, const DataSet& data,
                    std::int64_t batch_size, c10d::ProcessGroup& group,
                    Precision precision = Precision::fp32);

}  // namespace gradwire
