#include "gradwire/train/parallel/parallel_linear.h"

#include "gradwire/base/refuse.h"
#include "gradwire/train/parallel/rank_functions.h"
#include "gradwire/train/parallel/sequence_parallel.h"

namespace gradwire {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Columns : torch::CustomClassHolder {
  ProcessGroup group;
  std::optional<std::int64_t> sequence_dimension;
};

/// [..., n] as a matrix of n columns, of which there may be none.
torch::Tensor as_rows(const torch::Tensor& x) {
  return x.dim() == 1 ? x.unsqueeze(0) : x.flatten(0, -2);
}

/// at::linear() on a replicated or gathered input. Backward overlaps the sum of the input's
/// gradient with the gradient of the weight. SplitBackward runs backward twice, for the input and
/// for the parameters (is_column_linear()): each run computes only its gradients.
struct ColumnLinear : torch::autograd::Function<ColumnLinear> {
  static torch::Tensor forward(AutogradContext* context, const torch::Tensor& input,
                               const torch::Tensor& weight,
                               const std::optional<torch::Tensor>& bias,
                               const c10::intrusive_ptr<Columns>& columns) {
    auto whole = input;
    if (const auto d = columns->sequence_dimension) {
      whole =
          collective::gather(input, *d, input.size(*d) * columns->group->getSize(), columns->group);
    }
    context->saved_data["columns"] = c10::IValue::make_capsule(columns);
    context->save_for_backward({whole, weight});
    context->saved_data["bias"] = bias.has_value();
    return at::linear(whole, weight, bias);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto columns =
        c10::static_intrusive_pointer_cast<Columns>(context->saved_data["columns"].toCapsule());
    const auto saved = context->get_saved_variables();
    const torch::Tensor& dy = gradients[0];
    const auto type = dy.scalar_type();  // Under autocast, not that of the weight.
    collective::Pending input_gradient;
    if (context->needs_input_grad(0)) {
      input_gradient = start(dy.matmul(saved[1].to(type)).to(saved[0].scalar_type()), *columns);
    }
    torch::Tensor weight_gradient;
    torch::Tensor bias_gradient;
    const auto rows = as_rows(dy);
    if (context->needs_input_grad(1)) {
      const auto inputs = as_rows(saved[0]).to(type);
      weight_gradient = rows.t().matmul(inputs).to(saved[1].scalar_type());
    }
    const bool has_bias = context->saved_data["bias"].toBool();
    if (has_bias && context->needs_input_grad(2))
      bias_gradient = rows.sum(0).to(saved[1].scalar_type());
    return {input_gradient.wait(), weight_gradient, bias_gradient, torch::Tensor()};
  }

 private:
  static collective::Pending start(const torch::Tensor& gradient, const Columns& columns) {
    if (!columns.sequence_dimension) return collective::start_sum(gradient, columns.group);
    return collective::start_reduce_scatter(gradient, *columns.sequence_dimension, columns.group);
  }
};

/// `initial`, or a new layer with these options.
template <class Options>
torch::nn::Linear whole_linear(const Options& options, torch::nn::Linear initial) {
  if (initial) return initial;
  return torch::nn::Linear(
      torch::nn::LinearOptions(options.in_features(), options.out_features()).bias(options.bias()));
}

}  // namespace

bool is_column_linear(const torch::autograd::Node& node) {
  return dynamic_cast<const torch::autograd::CppNode<ColumnLinear>*>(&node) != nullptr;
}

ColumnParallelLinearImpl::ColumnParallelLinearImpl(const ColumnParallelLinearOptions& options_,
                                                   const ProcessGroup& group,
                                                   torch::nn::Linear initial)
    : ParallelModule(group), options(options_) {
  const auto in = options.in_features();
  const auto out = options.out_features();
  const auto blocks = options.blocks();
  if (blocks < 1 || out % blocks != 0 || (blocks > 1 && options.gather_output())) {
    refuse(
        "ColumnParallelLinear: {} blocks of {} output features{}; blocks must divide the features, "
        "and go without gather_output",
        blocks, out, options.gather_output() ? ", gathered" : "");
  }
  initial = whole_linear(options, std::move(initial));
  const auto own = blocks * (part_begin(out / blocks, ranks(), rank() + 1) -
                             part_begin(out / blocks, ranks(), rank()));
  const Division rows = blocks == 1 ? divided({out, in}, 0, ranks())
                                    : divided({blocks, out / blocks, in}, 1, ranks());
  weight = register_part("weight", initial->weight, rows, {own, in});
  if (options.bias()) {
    const Division features =
        blocks == 1 ? divided({out}, 0, ranks()) : divided({blocks, out / blocks}, 1, ranks());
    bias = register_part("bias", initial->bias, features, {own});
  } else {
    bias = register_parameter("bias", torch::Tensor(), false);
  }
}

torch::Tensor ColumnParallelLinearImpl::forward(const torch::Tensor& input) {
  if (ranks() == 1) return torch::nn::functional::linear(input, weight, bias);
  auto columns = c10::make_intrusive<Columns>();
  columns->group = group();
  columns->sequence_dimension = options.sequence_dimension();
  const auto own_bias = options.bias() ? std::optional(bias) : std::nullopt;
  const auto output = ColumnLinear::apply(input, weight, own_bias, columns);
  if (!options.gather_output()) return output;
  return gather_over_ranks(output, output.dim() - 1, options.out_features(), group());
}

RowParallelLinearImpl::RowParallelLinearImpl(const RowParallelLinearOptions& options_,
                                             const ProcessGroup& group, torch::nn::Linear initial)
    : ParallelModule(group), options(options_) {
  const auto in = options.in_features();
  const auto out = options.out_features();
  initial = whole_linear(options, std::move(initial));
  weight = register_part("weight", initial->weight, divided({out, in}, 1, ranks()));
  bias = register_parameter("bias", initial->bias, options.bias());
}

torch::Tensor RowParallelLinearImpl::forward(const torch::Tensor& input) {
  if (ranks() == 1) return torch::nn::functional::linear(input, weight, bias);
  const auto own =
      options.input_is_parallel() ? input : scatter_over_ranks(input, input.dim() - 1, group());
  const auto sequence = options.sequence_dimension();
  const auto output =
      sum_for_sequence("RowParallelLinear", torch::linear(own, weight), sequence, group());
  if (!options.bias()) return output;
  const auto added = sequence ? copy_to_ranks(bias, group()) : bias;
  return output + added.to(output.scalar_type());  // Under autocast, not the bias's type.
}

}  // namespace gradwire
