#include "gradwire/base/element.h"

#include <array>
#include <bit>
#include <cstring>

namespace gradwire {
namespace {

struct TypeRow {
  DataType type;
  std::string_view name;
  std::size_t size;
};

constexpr std::array<TypeRow, 9> kTypes{{{DataType::float32, "float32", 4},
                                         {DataType::float64, "float64", 8},
                                         {DataType::bfloat16, "bfloat16", 2},
                                         {DataType::float16, "float16", 2},
                                         {DataType::int32, "int32", 4},
                                         {DataType::int64, "int64", 8},
                                         {DataType::uint8, "uint8", 1},
                                         {DataType::int8, "int8", 1},
                                         {DataType::int16, "int16", 2}}};

constexpr std::array<DataType, 9> kTypeList{
    DataType::float32, DataType::float64, DataType::bfloat16, DataType::float16, DataType::int32,
    DataType::int64,   DataType::uint8,   DataType::int8,     DataType::int16};

constexpr std::array<std::string_view, 8> kOpNames{"sum",     "mean",    "min",    "max",
                                                   "product", "bit_and", "bit_or", "bit_xor"};

constexpr std::array<ReduceOp, 5> kOpList{ReduceOp::sum, ReduceOp::mean, ReduceOp::min,
                                          ReduceOp::max, ReduceOp::product};

}  // namespace

bool combines(DataType type, ReduceOp op) {
  if (op <= ReduceOp::product) return true;
  return type != DataType::float32 && type != DataType::float64 && type != DataType::bfloat16 &&
         type != DataType::float16;
}

std::size_t size_of(DataType type) {
  return kTypes[static_cast<std::size_t>(type)].size;
}

std::string_view name_of(DataType type) {
  return kTypes[static_cast<std::size_t>(type)].name;
}

std::string_view name_of(ReduceOp op) {
  return kOpNames[static_cast<std::size_t>(op)];
}

std::optional<DataType> data_type_named(std::string_view name) {
  for (const TypeRow& row : kTypes) {
    if (row.name == name) return row.type;
  }
  return std::nullopt;
}

std::optional<ReduceOp> reduce_op_named(std::string_view name) {
  for (ReduceOp op : kOpList) {
    if (name_of(op) == name) return op;
  }
  return std::nullopt;
}

std::span<const DataType> all_data_types() {
  return kTypeList;
}

std::span<const ReduceOp> all_reduce_ops() {
  return kOpList;
}

namespace {

template <class T>
void put(std::byte* at, T value) {
  std::memcpy(at, &value, sizeof value);
}

template <class T>
T get(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

std::uint16_t bfloat16_bits(double value) {
  const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(value));
  return static_cast<std::uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}

}  // namespace

void store_element(std::byte* at, DataType type, double value) {
  switch (type) {
    case DataType::float32:
      return put(at, static_cast<float>(value));
    case DataType::float64:
      return put(at, value);
    case DataType::bfloat16:
      return put(at, bfloat16_bits(value));
    case DataType::float16:
      return put(at, static_cast<_Float16>(value));
    case DataType::int32:
      return put(at, static_cast<std::int32_t>(value));
    case DataType::int64:
      return put(at, static_cast<std::int64_t>(value));
    case DataType::uint8:
      return put(at, static_cast<std::uint8_t>(value));
    case DataType::int8:
      return put(at, static_cast<std::int8_t>(value));
    case DataType::int16:
      return put(at, static_cast<std::int16_t>(value));
  }
}

double load_element(const std::byte* at, DataType type) {
  switch (type) {
    case DataType::float32:
      return get<float>(at);
    case DataType::float64:
      return get<double>(at);
    case DataType::bfloat16:
      return std::bit_cast<float>(static_cast<std::uint32_t>(get<std::uint16_t>(at)) << 16);
    case DataType::float16:
      return static_cast<double>(get<_Float16>(at));
    case DataType::int32:
      return get<std::int32_t>(at);
    case DataType::int64:
      return static_cast<double>(get<std::int64_t>(at));
    case DataType::uint8:
      return get<std::uint8_t>(at);
    case DataType::int8:
      return get<std::int8_t>(at);
    case DataType::int16:
      return get<std::int16_t>(at);
  }
  return 0;
}

}  // namespace gradwire
