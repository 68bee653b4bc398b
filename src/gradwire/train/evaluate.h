#pragma once

#include <cstdint>

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

/// Evaluates a classifier (log-probabilities) on `data`, each rank on its part, each sample once.
/// The same result on every rank. Collective. Leaves the model in the mode it was in. `precision`
/// is that of the model's parameters.
Evaluation evaluate(torch::nn::Sequential& model, const DataSet& data, c10d::ProcessGroup& group,
                    Precision precision = Precision::fp32);

}  // namespace gradwire
