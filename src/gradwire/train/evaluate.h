#pragma once

#include <cstdint>

#include <torch/torch.h>

#include "gradwire/data/fashion_mnist.h"
#include "gradwire/train/group.h"

namespace gradwire {

struct Evaluation {
  std::int64_t images = 0;
  double accuracy = 0;  ///< 0 .. 1.
  double loss = 0;      ///< Mean negative log-likelihood.
};

/// Evaluates a classifier (log-probabilities) on `data`, each rank on its part, each image once.
/// The same result on every rank. Collective. Leaves the model in the mode it was in.
Evaluation evaluate(torch::nn::Sequential& model, const ImageData& data, c10d::ProcessGroup& group);

}  // namespace gradwire
