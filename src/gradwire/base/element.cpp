#include "gradwire/base/element.h"

#include <array>

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

}  // namespace gradwire
