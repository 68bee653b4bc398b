#include "gradwire/torch/tensor_reduction.h"

#include <array>
#include <span>
#include <string_view>

#include <fmt/format.h>

#include "gradwire/torch/tensor_lists.h"

namespace gradwire {
namespace {

using TorchOp = c10d::ReduceOp;

constexpr std::array<std::string_view, 9> kNames{"SUM",  "AVG", "PRODUCT", "MIN",       "MAX",
                                                 "BAND", "BOR", "BXOR",    "PREMUL_SUM"};

std::string_view name_of_reduction(TorchOp::RedOpType op) {
  return op < kNames.size() ? kNames[op] : "UNUSED";
}

[[noreturn]] void refuse(TorchOp::RedOpType op, at::ScalarType type, const ArgumentName& name,
                         std::string_view instead) {
  throw Exception(ErrorKind::unsupported,
                  fmt::format("rank {}: {}, argument '{}': cannot reduce elements of type {} with "
                              "ReduceOp.{}; {}",
                              name.rank, name.operation, name.argument, torch::toString(type),
                              name_of_reduction(op), instead));
}

std::optional<ReduceOp> arithmetic(TorchOp::RedOpType op) {
  switch (op) {
    case TorchOp::SUM:
    case TorchOp::PREMUL_SUM:
      return ReduceOp::sum;
    case TorchOp::AVG:
      return ReduceOp::mean;
    case TorchOp::MIN:
      return ReduceOp::min;
    case TorchOp::MAX:
      return ReduceOp::max;
    case TorchOp::PRODUCT:
      return ReduceOp::product;
    default:
      return std::nullopt;
  }
}

std::optional<ReduceOp> bitwise(TorchOp::RedOpType op) {
  switch (op) {
    case TorchOp::BAND:
      return ReduceOp::bit_and;
    case TorchOp::BOR:
      return ReduceOp::bit_or;
    case TorchOp::BXOR:
      return ReduceOp::bit_xor;
    default:
      return std::nullopt;
  }
}

/// bool is a byte that is 0 or 1.
std::optional<ReduceOp> logical(TorchOp::RedOpType op) {
  switch (op) {
    case TorchOp::SUM:
    case TorchOp::MAX:
      return ReduceOp::max;
    case TorchOp::PRODUCT:
    case TorchOp::MIN:
      return ReduceOp::min;
    default:
      return bitwise(op);
  }
}

/// Signed type for unsigned integers without a DataType, for operations independent of the sign.
std::optional<DataType> signed_type(at::ScalarType type) {
  switch (type) {
    case at::kUInt16:
      return DataType::int16;
    case at::kUInt32:
      return DataType::int32;
    case at::kUInt64:
      return DataType::int64;
    default:
      return std::nullopt;
  }
}

TensorReduction for_unsigned(DataType type, TorchOp::RedOpType op, at::ScalarType of,
                             const ArgumentName& name) {
  if (const auto found = bitwise(op)) return {*found, type, {}};
  if (op == TorchOp::SUM || op == TorchOp::PRODUCT) return {*arithmetic(op), type, {}};
  refuse(op, of, name, "use SUM, PRODUCT, BAND, BOR or BXOR, or a signed type");
}

/// A complex number is two real ones, which addition does not mix.
TensorReduction for_complex(DataType type, const TorchOp& op, at::ScalarType of,
                            const ArgumentName& name) {
  if (op.op_ == TorchOp::SUM || op.op_ == TorchOp::AVG) return {*arithmetic(op.op_), type, {}};
  refuse(op.op_, of, name, "use SUM or AVG");
}

at::Tensor factor_of(const TorchOp& op, at::ScalarType type, const ArgumentName& name) {
  const auto* supplement = dynamic_cast<const c10d::NCCLPreMulSumSupplement*>(op.supplement_.get());
  if (!supplement) refuse(op.op_, type, name, "construct it as ReduceOp.PREMUL_SUM(factor)");
  if (supplement->tensor_factor.defined()) return supplement->tensor_factor;
  return at::scalar_tensor(supplement->double_factor, at::kDouble);
}

TensorReduction for_numbers(DataType type, const TorchOp& op, at::ScalarType of, int ranks,
                            const ArgumentName& name) {
  const bool whole = at::isIntegralType(of, /*includeBool=*/false);
  if (op.op_ == TorchOp::PREMUL_SUM) {
    if (whole) refuse(op.op_, of, name, "use it with floating-point types");
    return {ReduceOp::sum, type, factor_of(op, of, name)};
  }
  if (op.op_ == TorchOp::AVG && of == at::kHalf) return {ReduceOp::sum, type, {}, ranks};
  if (const auto found = arithmetic(op.op_)) return {*found, type, {}};
  const auto found = bitwise(op.op_);
  if (found && whole) return {*found, type, {}};
  refuse(op.op_, of, name, "use SUM, AVG, MIN, MAX, PRODUCT or PREMUL_SUM");
}

at::Tensor combined(TorchOp::RedOpType op, const at::Tensor& a, const at::Tensor& b,
                    const ArgumentName& name) {
  switch (op) {
    case TorchOp::SUM:
      return at::add(a, b);
    case TorchOp::PRODUCT:
      return at::mul(a, b);
    case TorchOp::MIN:
      return at::minimum(a, b);
    case TorchOp::MAX:
      return at::maximum(a, b);
    case TorchOp::BAND:
      return at::bitwise_and(a, b);
    case TorchOp::BOR:
      return at::bitwise_or(a, b);
    case TorchOp::BXOR:
      return at::bitwise_xor(a, b);
    default:
      refuse(op, a.scalar_type(), name,
             "several tensors of one rank support neither AVG nor PREMUL_SUM; pass one at a time");
  }
}

}  // namespace

TensorReduction reduction_of(const TorchOp& op, at::ScalarType type, int ranks,
                             const ArgumentName& name) {
  if (type == at::kBool) {
    if (const auto found = logical(op.op_)) return {*found, DataType::uint8, {}};
    refuse(op.op_, type, name, "use SUM (logical or), PRODUCT (and), MIN, MAX, BAND, BOR or BXOR");
  }
  if (type == at::kComplexFloat) return for_complex(DataType::float32, op, type, name);
  if (type == at::kComplexDouble) return for_complex(DataType::float64, op, type, name);
  if (const auto as = signed_type(type)) return for_unsigned(*as, op.op_, type, name);
  if (const auto as = data_type_of(type)) return for_numbers(*as, op, type, ranks, name);
  refuse(op.op_, type, name,
         "convert to float32, float64, bfloat16, float16, int8, int16, int32, int64 or uint8");
}

LentSpan lend_to(const TensorReduction& reduction, const torch::Tensor& tensor,
                 const ArgumentName& name) {
  return lend_as(reduction.type, tensor, name);
}

at::Tensor reduce_locally(const std::vector<at::Tensor>& tensors, const TorchOp& op,
                          const ArgumentName& name) {
  const at::NoGradGuard no_grad;
  check_alike(tensors, name);
  auto sum = tensors.front().detach().clone(at::MemoryFormat::Contiguous);
  for (const at::Tensor& tensor : std::span(tensors).subspan(1)) {
    sum = combined(op.op_, sum, tensor.detach(), name);
  }
  return sum;
}

at::Tensor premultiplied(const TensorReduction& reduction, const at::Tensor& tensor) {
  const at::NoGradGuard no_grad;
  if (reduction.divisor > 1) return tensor.div(reduction.divisor);
  if (!reduction.factor) return tensor;
  return tensor.mul(reduction.factor->reshape({}).to(tensor.device(), tensor.scalar_type()));
}

void premultiply(const TensorReduction& reduction, const at::Tensor& tensor) {
  const at::NoGradGuard no_grad;
  if (reduction.divisor > 1) tensor.div_(reduction.divisor);
  if (!reduction.factor) return;
  tensor.mul_(reduction.factor->reshape({}).to(tensor.device(), tensor.scalar_type()));
}

}  // namespace gradwire
