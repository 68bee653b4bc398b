#include "gradwire/torch/tensor_span.h"

#include <cstring>
#include <sstream>
#include <utility>

#include <fmt/format.h>

#include "gradwire/base/refuse.h"

namespace gradwire {
namespace {

[[noreturn]] void refuse(ErrorKind kind, const ArgumentName& name, const std::string& reason) {
  throw Exception(kind, fmt::format("rank {}: {}, argument '{}': {}", name.rank, name.operation,
                                    name.argument, reason));
}

std::string text(const auto& printable) {
  std::ostringstream out;
  out << printable;
  return out.str();
}

void check_memory(const torch::Tensor& tensor, const ArgumentName& name, bool any_device = false) {
  const auto wrong = [&](const std::string& reason) {
    refuse(ErrorKind::invalid_argument, name, reason);
  };
  if (!tensor.defined()) wrong("the tensor is undefined");
  if (tensor.layout() != torch::kStrided) {
    wrong(fmt::format("the layout is {}; convert it with to_dense()", text(tensor.layout())));
  }
  if (!tensor.device().is_cpu() && !any_device) {
    wrong(fmt::format("the tensor is on {}; gradwire communicates CPU memory: move it with .cpu()",
                      text(tensor.device())));
  }
  if (!tensor.is_contiguous()) {
    wrong(fmt::format("sizes {} with strides {} are not contiguous; pass .contiguous()",
                      text(tensor.sizes()), text(tensor.strides())));
  }
  if (tensor.is_conj() || tensor.is_neg()) {
    wrong("the tensor is lazily conjugated or negated; pass .resolve_conj().resolve_neg()");
  }
}

LentSpan span_of(const torch::Tensor& tensor, DataType type) {
  return {.data = tensor.data_ptr(),
          .count = tensor.nbytes() / size_of(type),
          .type = type,
          .keep_alive = std::make_shared<torch::Tensor>(tensor)};
}

torch::ScalarType scalar_type_of(DataType type) {
  switch (type) {
    case DataType::float32:
      return torch::kFloat32;
    case DataType::float64:
      return torch::kFloat64;
    case DataType::bfloat16:
      return torch::kBFloat16;
    case DataType::float16:
      return torch::kFloat16;
    case DataType::int32:
      return torch::kInt32;
    case DataType::int64:
      return torch::kInt64;
    case DataType::int8:
      return torch::kInt8;
    case DataType::int16:
      return torch::kInt16;
    case DataType::uint8:
      break;
  }
  return torch::kUInt8;
}

}  // namespace

std::optional<DataType> data_type_of(torch::ScalarType type) {
  switch (type) {
    case torch::kFloat32:
      return DataType::float32;
    case torch::kFloat64:
      return DataType::float64;
    case torch::kBFloat16:
      return DataType::bfloat16;
    case torch::kFloat16:
      return DataType::float16;
    case torch::kInt32:
      return DataType::int32;
    case torch::kInt64:
      return DataType::int64;
    case torch::kUInt8:
      return DataType::uint8;
    case torch::kInt8:
      return DataType::int8;
    case torch::kInt16:
      return DataType::int16;
    default:
      return std::nullopt;
  }
}

DataType reducible_type_of(const torch::Tensor& tensor, const ArgumentName& name) {
  if (const auto type = data_type_of(tensor.scalar_type())) return *type;
  refuse(ErrorKind::unsupported, name,
         fmt::format("cannot reduce elements of type {}; convert to float32, float64, bfloat16, "
                     "float16, int8, int16, int32, int64 or uint8",
                     torch::toString(tensor.scalar_type())));
}

LentSpan lend(const torch::Tensor& tensor, const ArgumentName& name) {
  check_memory(tensor, name);
  return span_of(tensor, reducible_type_of(tensor, name));
}

LentSpan lend_on_device(const torch::Tensor& tensor, const ArgumentName& name) {
  check_memory(tensor, name, /*any_device=*/true);
  return span_of(tensor, reducible_type_of(tensor, name));
}

torch::Tensor tensor_over(const LentConstSpan& span, c10::Device device) {
  const auto options = torch::TensorOptions(scalar_type_of(span.type)).device(device);
  auto memory = c10::InefficientStdFunctionContext::makeDataPtr(
      const_cast<void*>(span.data), [keep_alive = span.keep_alive](void*) {}, device);
  const c10::Storage storage(c10::Storage::use_byte_size_t(), span.count * size_of(span.type),
                             std::move(memory));
  return torch::empty({0}, options).set_(storage, 0, {static_cast<std::int64_t>(span.count)}, {1});
}

LentSpan lend_bytes(const torch::Tensor& tensor, const ArgumentName& name) {
  check_memory(tensor, name);
  return span_of(tensor, data_type_of(tensor.scalar_type()).value_or(DataType::uint8));
}

LentSpan lend_as(DataType type, const torch::Tensor& tensor, const ArgumentName& name) {
  check_memory(tensor, name);
  return span_of(tensor, type);
}

torch::Tensor copy_of(const LentSpan& span) {
  auto copy = torch::empty({static_cast<std::int64_t>(span.count)}, scalar_type_of(span.type));
  if (span.count > 0) std::memcpy(copy.data_ptr(), span.data, copy.nbytes());
  return copy;
}

}  // namespace gradwire
