#pragma once

#include <cstdint>

#include <torch/torch.h>

#include "gradwire/train/parallel/box_exchange.h"
#include "gradwire/train/parallel/parallel_module.h"

namespace gradwire {

/// Normalizes x of [outer, statistics, inner] over its first and last dimension, and over the ranks
/// of a group, each of which has other elements (possibly none). Each rank sends count, mean and
/// sum of squared deviations of each statistic, in float64; all ranks merge them in the order of
/// ranks (Chan, Golub, LeVeque 1979), so that the statistics are replicated bit for bit. Backward
/// sends two sums a statistic.
struct NormalizedOverRanks {
  torch::Tensor output;    ///< Normalized x, of the same shape.
  torch::Tensor mean;      ///< [statistics], float64, without a gradient.
  torch::Tensor variance;  ///< [statistics], float64, biased, without a gradient.
  double count = 0;        ///< Elements of a statistic over all ranks.
};
NormalizedOverRanks normalize_over_ranks(const torch::Tensor& x, double eps,
                                         const ProcessGroup& group);

/// torch::nn::BatchNorm1d, 2d and 3d with the statistics of all ranks' elements: each rank has
/// other samples, or another part of the space. Input: [samples, channels, ...]. Buffers as
/// torch's, with the same values on every rank. Evaluation is local.
///
/// The gradients of weight and bias are summed over ranks, so that they stay replicated. Set
/// `sum_gradients` to false if something else reduces them over the same ranks (DataParallel).
class ParallelBatchNormImpl : public ParallelModule {
 public:
  ParallelBatchNormImpl(const torch::nn::BatchNormOptions& options, const ProcessGroup& group,
                        bool sum_gradients = true);

  torch::Tensor forward(const torch::Tensor& input);

  torch::nn::BatchNormOptions options;
  torch::Tensor weight;
  torch::Tensor bias;
  torch::Tensor running_mean;
  torch::Tensor running_var;
  torch::Tensor num_batches_tracked;

 private:
  void track(const NormalizedOverRanks& normalized);

  bool sum_gradients_;
};
TORCH_MODULE(ParallelBatchNorm);

/// torch::nn::GroupNorm of samples whose space is divided over ranks: statistics of each sample and
/// group of channels over all ranks. Every rank must have all samples and channels.
class ParallelGroupNormImpl : public ParallelModule {
 public:
  ParallelGroupNormImpl(const torch::nn::GroupNormOptions& options, const ProcessGroup& group);

  torch::Tensor forward(const torch::Tensor& input);

  torch::nn::GroupNormOptions options;
  torch::Tensor weight;
  torch::Tensor bias;
};
TORCH_MODULE(ParallelGroupNorm);

/// torch::nn::GroupNorm of samples whose channels are divided over ranks, as those of a
/// ParallelConv2d: each rank has whole groups. No communication. Input: [samples, own channels,
/// ...]. Throws Exception(invalid_argument) if the groups do not divide.
class ChannelParallelGroupNormImpl : public ParallelModule {
 public:
  ChannelParallelGroupNormImpl(const torch::nn::GroupNormOptions& options,
                               const ProcessGroup& group);

  torch::Tensor forward(const torch::Tensor& input);

  torch::nn::GroupNormOptions options;
  torch::Tensor weight;  ///< [own channels]
  torch::Tensor bias;    ///< [own channels]
};
TORCH_MODULE(ChannelParallelGroupNorm);

}  // namespace gradwire
