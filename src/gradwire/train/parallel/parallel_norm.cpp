#include "gradwire/train/parallel/parallel_norm.h"

#include <algorithm>
#include <array>

#include <fmt/ranges.h>

#include "gradwire/base/refuse.h"
#include "gradwire/train/parallel/rank_functions.h"
#include "gradwire/train/parallel/sequence_parallel.h"

namespace gradwire {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Statistics {
  torch::Tensor mean;
  torch::Tensor variance;
  double count = 0;
};

/// All dimensions but the second. A plain list is ambiguous where a sum takes names of dimensions.
constexpr std::array<std::int64_t, 2> kAllButStatistics{0, 2};

/// [statistics] as [1, statistics, 1] of x's type.
torch::Tensor per_statistic(const torch::Tensor& values, const torch::Tensor& x) {
  return values.to(x.scalar_type()).view({1, -1, 1});
}

/// Merges (count, mean, sum of squared deviations) of all ranks, in their order.
Statistics merged_statistics(const torch::Tensor& x, const ProcessGroup& group) {
  const auto count = static_cast<double>(x.size(0) * x.size(2));
  const auto mean = x.sum(kAllButStatistics, false, torch::kFloat64) / std::max(count, 1.0);
  const auto deviation = x - per_statistic(mean, x);
  const auto squares = (deviation * deviation).sum(kAllButStatistics, false, torch::kFloat64);
  // The deviations are from the rounded mean: correct their sum of squares for it.
  const auto rest = deviation.sum(kAllButStatistics, false, torch::kFloat64) / std::max(count, 1.0);
  const auto own =
      torch::stack({torch::full_like(mean, count), mean, squares - rest * rest * count});
  const auto all = collective::stack(own, group);
  Statistics merged{all[0][1].clone(), all[0][2].clone(), all[0][0][0].item<double>()};
  for (std::int64_t r = 1; r < all.size(0); ++r) {
    const auto more = all[r][0][0].item<double>();
    if (more == 0) continue;
    const auto total = merged.count + more;
    const auto difference = all[r][1] - merged.mean;
    merged.mean += difference * (more / total);
    merged.variance += all[r][2] + difference * difference * (merged.count * more / total);
    merged.count = total;
  }
  merged.variance /= std::max(merged.count, 1.0);
  return merged;
}

/// (x - mean) / sqrt(variance + eps), where mean and variance depend on all ranks' x.
struct Normalize : torch::autograd::Function<Normalize> {
  static torch::Tensor forward(AutogradContext* context, const torch::Tensor& x,
                               const Statistics& statistics, double eps,
                               const ProcessGroup& group) {
    const auto scale = per_statistic((statistics.variance + eps).rsqrt(), x);
    auto normalized = (x - per_statistic(statistics.mean, x)) * scale;
    context->save_for_backward({normalized, scale});
    context->saved_data["count"] = statistics.count;
    context->saved_data["group"] = c10::IValue::make_capsule(group);
    return normalized;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const auto group = c10::static_intrusive_pointer_cast<c10d::ProcessGroup>(
        context->saved_data["group"].toCapsule());
    const torch::Tensor& dy = gradients[0];
    const auto own = torch::stack({dy.sum(kAllButStatistics, false, torch::kFloat64),
                                   (dy * saved[0]).sum(kAllButStatistics, false, torch::kFloat64)});
    const auto all = collective::stack(own, group);
    auto sums = all[0].clone();
    for (std::int64_t r = 1; r < all.size(0); ++r) sums += all[r];
    const auto means = sums / std::max(context->saved_data["count"].toDouble(), 1.0);
    const auto dx =
        (dy - per_statistic(means[0], dy) - saved[0] * per_statistic(means[1], dy)) * saved[1];
    return {dx, {}, {}, {}};
  }
};

/// x * weight + bias by channel, the second dimension.
torch::Tensor scaled(torch::Tensor x, const std::vector<torch::Tensor>& affine) {
  std::vector<std::int64_t> shape(static_cast<std::size_t>(x.dim()), 1);
  shape[1] = x.size(1);
  if (affine[0].defined()) x = x * affine[0].view(shape);
  if (affine[1].defined()) x = x + affine[1].view(shape);
  return x;
}

/// Elements of each [sample, channel].
std::int64_t space_of(const torch::Tensor& input) {
  std::int64_t elements = 1;
  for (std::int64_t d = 2; d < input.dim(); ++d) elements *= input.size(d);
  return elements;
}

void check_input(const char* who, const torch::Tensor& input, std::int64_t channels) {
  if (input.dim() >= 2 && input.size(1) == channels) return;
  refuse("{}: expected [samples, {} channels, ...], found [{}]", who, channels,
         fmt::join(input.sizes().vec(), ", "));
}

}  // namespace

NormalizedOverRanks normalize_over_ranks(const torch::Tensor& x, double eps,
                                         const ProcessGroup& group) {
  Statistics statistics;
  {
    const torch::NoGradGuard no_grad;
    statistics = merged_statistics(x, group);
  }
  const auto output = Normalize::apply(x, statistics, eps, group);
  return {output, statistics.mean, statistics.variance, statistics.count};
}

ParallelBatchNormImpl::ParallelBatchNormImpl(const torch::nn::BatchNormOptions& options_,
                                             const ProcessGroup& group, bool sum_gradients)
    : ParallelModule(group), options(options_), sum_gradients_(sum_gradients) {
  const torch::nn::BatchNorm2d plain(options);
  weight = register_parameter("weight", plain->weight, options.affine());
  bias = register_parameter("bias", plain->bias, options.affine());
  running_mean = register_buffer("running_mean", plain->running_mean);
  running_var = register_buffer("running_var", plain->running_var);
  num_batches_tracked = register_buffer("num_batches_tracked", plain->num_batches_tracked);
}

torch::Tensor ParallelBatchNormImpl::forward(const torch::Tensor& input) {
  check_input("ParallelBatchNorm", input, options.num_features());
  const bool own_statistics = is_training() || !options.track_running_stats();
  if (!own_statistics || ranks() == 1) {
    if (is_training() && options.track_running_stats()) num_batches_tracked += 1;
    const auto momentum = options.momentum() ? *options.momentum()
                          : num_batches_tracked.defined() && is_training()
                              ? 1 / num_batches_tracked.to(torch::kFloat64).item<double>()
                              : 0.0;
    return torch::batch_norm(input, weight, bias, running_mean, running_var, own_statistics,
                             momentum, options.eps(), false);
  }
  const auto x = input.reshape({input.size(0), input.size(1), space_of(input)});
  const auto normalized = normalize_over_ranks(x, options.eps(), group());
  if (is_training() && options.track_running_stats()) track(normalized);
  const std::vector<torch::Tensor> affine{weight, bias};
  return scaled(normalized.output.view(input.sizes()),
                sum_gradients_ ? copy_together(affine, group()) : affine);
}

void ParallelBatchNormImpl::track(const NormalizedOverRanks& normalized) {
  const torch::NoGradGuard no_grad;
  num_batches_tracked += 1;
  const auto momentum = options.momentum()
                            ? *options.momentum()
                            : 1 / num_batches_tracked.to(torch::kFloat64).item<double>();
  const auto unbiased =
      normalized.variance * (normalized.count / std::max(normalized.count - 1, 1.0));
  running_mean.mul_(1 - momentum).add_(normalized.mean.to(running_mean.scalar_type()), momentum);
  running_var.mul_(1 - momentum).add_(unbiased.to(running_var.scalar_type()), momentum);
}

ParallelGroupNormImpl::ParallelGroupNormImpl(const torch::nn::GroupNormOptions& options_,
                                             const ProcessGroup& group)
    : ParallelModule(group), options(options_) {
  if (options.num_groups() < 1 || options.num_channels() % options.num_groups() != 0) {
    refuse("ParallelGroupNorm: {} channels cannot be divided into {} groups",
           options.num_channels(), options.num_groups());
  }
  const torch::nn::GroupNorm plain(options);
  weight = register_parameter("weight", plain->weight, options.affine());
  bias = register_parameter("bias", plain->bias, options.affine());
}

torch::Tensor ParallelGroupNormImpl::forward(const torch::Tensor& input) {
  check_input("ParallelGroupNorm", input, options.num_channels());
  if (ranks() == 1) {
    return torch::group_norm(input, options.num_groups(), weight, bias, options.eps());
  }
  const auto groups = options.num_groups();
  const auto elements = options.num_channels() / groups * space_of(input);
  const auto x = input.reshape({1, input.size(0) * groups, elements});
  const auto normalized = normalize_over_ranks(x, options.eps(), group());
  return scaled(normalized.output.view(input.sizes()), copy_together({weight, bias}, group()));
}

ChannelParallelGroupNormImpl::ChannelParallelGroupNormImpl(
    const torch::nn::GroupNormOptions& options_, const ProcessGroup& group)
    : ParallelModule(group), options(options_) {
  equal_part("groups of a group norm", options.num_groups(), group);
  const torch::nn::GroupNorm plain(options);
  if (options.affine()) {
    const Division channels = divided({options.num_channels()}, 0, ranks());
    weight = register_part("weight", plain->weight, channels);
    bias = register_part("bias", plain->bias, channels);
  } else {
    weight = register_parameter("weight", torch::Tensor(), false);
    bias = register_parameter("bias", torch::Tensor(), false);
  }
}

torch::Tensor ChannelParallelGroupNormImpl::forward(const torch::Tensor& input) {
  return torch::group_norm(input, options.num_groups() / ranks(), weight, bias, options.eps());
}

}  // namespace gradwire
