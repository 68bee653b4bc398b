#include "gradwire/torch/safetensors_types.h"

#include <array>

#include <fmt/format.h>

#include "gradwire/base/error.h"

namespace gradwire {
namespace {

struct TypeName {
  torch::ScalarType type;
  const char* name;
};

constexpr std::array<TypeName, 18> kTypes{{{torch::kFloat64, "F64"},
                                           {torch::kFloat32, "F32"},
                                           {torch::kFloat16, "F16"},
                                           {torch::kBFloat16, "BF16"},
                                           {torch::kInt64, "I64"},
                                           {torch::kInt32, "I32"},
                                           {torch::kInt16, "I16"},
                                           {torch::kInt8, "I8"},
                                           {torch::kUInt8, "U8"},
                                           {torch::kUInt16, "U16"},
                                           {torch::kUInt32, "U32"},
                                           {torch::kUInt64, "U64"},
                                           {torch::kFloat8_e4m3fn, "F8_E4M3"},
                                           {torch::kFloat8_e4m3fnuz, "F8_E4M3FNUZ"},
                                           {torch::kFloat8_e5m2, "F8_E5M2"},
                                           {torch::kFloat8_e5m2fnuz, "F8_E5M2FNUZ"},
                                           {torch::kBool, "BOOL"},
                                           {torch::kComplexFloat, "C64"}}};

}  // namespace

std::string safetensors_type_name(torch::ScalarType type) {
  for (const auto& known : kTypes) {
    if (type == known.type) return known.name;
  }
  throw Exception(ErrorKind::unsupported,
                  fmt::format("safetensors has no name for elements of {}", torch::toString(type)));
}

torch::ScalarType safetensors_type(const std::string& name) {
  for (const auto& known : kTypes) {
    if (name == known.name) return known.type;
  }
  throw Exception(ErrorKind::unsupported, fmt::format("elements of type {} cannot be read", name));
}

std::span<std::byte> bytes_of(const torch::Tensor& tensor) {
  return {static_cast<std::byte*>(tensor.data_ptr()), tensor.nbytes()};
}

}  // namespace gradwire
