#include "gradwire/train/parallel/parallel_cross_entropy.h"

#include <limits>
#include <utility>

#include "gradwire/base/box.h"
#include "gradwire/base/refuse.h"
#include "gradwire/train/parallel/rank_functions.h"

namespace gradwire {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// Where the targets are in this rank's part of the classes.
struct OwnTargets {
  torch::Tensor index;  ///< [tokens, 1], 0 where the target is elsewhere.
  torch::Tensor owned;  ///< [tokens], true where this rank has the target's class.

  OwnTargets(const torch::Tensor& target, std::int64_t first, std::int64_t count) {
    const auto local = target - first;
    owned = (local >= 0).logical_and(local < count);
    index = local.masked_fill(owned.logical_not(), 0).unsqueeze(1);
  }
};

/// [tokens, own part of classes] logits and [tokens] targets -> the sum of losses.
struct CrossEntropy : torch::autograd::Function<CrossEntropy> {
  static torch::Tensor forward(AutogradContext* context, const torch::Tensor& logits,
                               const torch::Tensor& target, std::int64_t first,
                               const torch::Tensor& counted, const ProcessGroup& group) {
    const bool has_classes = logits.size(1) > 0;
    const auto lowest = -std::numeric_limits<double>::infinity();
    const auto own_max = has_classes ? std::get<0>(logits.max(1))
                                     : torch::full({logits.size(0)}, lowest, logits.options());
    const auto max = collective::max(own_max, group);
    auto exponentials = (logits - max.unsqueeze(1)).exp();
    const OwnTargets own(target, first, logits.size(1));
    const auto own_target =
        has_classes
            ? (logits.gather(1, own.index).squeeze(1) - max).masked_fill(own.owned.logical_not(), 0)
            : torch::zeros_like(max);
    const auto sums = collective::sum(torch::stack({own_target, exponentials.sum(1)}), group);
    exponentials.div_(sums[1].unsqueeze(1));
    context->save_for_backward({exponentials, target, counted});
    context->saved_data["first"] = first;
    return (sums[1].log() - sums[0]).masked_fill(counted.logical_not(), 0).sum();
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    auto gradient = saved[0].clone();  // The softmax; minus one at the target.
    const OwnTargets own(saved[1], context->saved_data["first"].toInt(), gradient.size(1));
    if (gradient.size(1) > 0) {
      gradient.scatter_add_(1, own.index, -own.owned.to(gradient.scalar_type()).unsqueeze(1));
    }
    gradient.masked_fill_(saved[2].logical_not().unsqueeze(1), 0).mul_(gradients[0]);
    return {gradient, {}, {}, {}, {}};
  }
};

void check_targets(const torch::Tensor& target, const torch::Tensor& counted,
                   std::int64_t classes) {
  const auto wrong = counted.logical_and((target < 0).logical_or(target >= classes));
  if (!wrong.any().item<bool>()) return;
  refuse("a target is {}, but there are {} classes",
         target.masked_select(wrong)[0].item<std::int64_t>(), classes);
}

}  // namespace

torch::Tensor cross_entropy_over_ranks(const torch::Tensor& logits, const torch::Tensor& target,
                                       std::int64_t classes, const ProcessGroup& group,
                                       std::int64_t ignore) {
  const auto first = part_begin(classes, group->getSize(), group->getRank());
  const auto count = part_begin(classes, group->getSize(), group->getRank() + 1) - first;
  if (logits.size(-1) != count) {
    refuse("rank {} of {} must have the logits of {} of {} classes; found {}", group->getRank(),
           group->getSize(), count, classes, logits.size(-1));
  }
  if (group->getSize() == 1) return cross_entropy_sum(ignore).sum(logits, target);
  const auto tokens = target.reshape({-1});
  const auto counted = tokens != ignore;
  check_targets(tokens, counted, classes);
  auto rows = logits.reshape({tokens.numel(), count});
  if (rows.scalar_type() != torch::kFloat64) rows = rows.to(torch::kFloat32);
  return CrossEntropy::apply(rows, tokens, first, counted, group);
}

PipelineLoss cross_entropy_sum_over_ranks(std::int64_t classes, ProcessGroup group,
                                          std::int64_t ignore) {
  PipelineLoss loss = cross_entropy_sum(ignore);
  loss.sum = [=, group = std::move(group)](const torch::Tensor& output,
                                           const torch::Tensor& target) {
    return cross_entropy_over_ranks(output, target, classes, group, ignore);
  };
  return loss;
}

}  // namespace gradwire
