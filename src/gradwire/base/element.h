#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace gradwire {

/// Element types of collectives. Wire format: values must not change; append only.
enum class DataType : std::uint8_t {
  float32 = 0,
  float64 = 1,
  bfloat16 = 2,
  float16 = 3,
  int32 = 4,
  int64 = 5,
  uint8 = 6,
  int8 = 7,
  int16 = 8,
};

/// Reduction operations. `mean` is the sum divided by the number of ranks; on integers it truncates
/// towards zero. min and max return NaN if any operand is NaN. The bitwise operations are for
/// integers only. Wire format: values must not change.
enum class ReduceOp : std::uint8_t {
  sum = 0,
  mean = 1,
  min = 2,
  max = 3,
  product = 4,
  bit_and = 5,
  bit_or = 6,
  bit_xor = 7,
};

/// Returns true if `op` is defined for elements of `type`.
bool combines(DataType type, ReduceOp op);

/// Size of one element in bytes.
std::size_t size_of(DataType type);

/// "float32", "bfloat16", ...
std::string_view name_of(DataType type);
std::string_view name_of(ReduceOp op);

/// Inverse of name_of(); nullopt for an unknown name.
std::optional<DataType> data_type_named(std::string_view name);
std::optional<ReduceOp> reduce_op_named(std::string_view name);

/// All types, and the operations that are defined for all types; for tables, tests and help texts.
std::span<const DataType> all_data_types();
std::span<const ReduceOp> all_reduce_ops();

/// Stores one element of a type at any address, or loads it. Storing rounds to the nearest value of
/// the type, ties to even; integer types truncate, and the value must be in range. Loading is
/// exact. For single elements, not for bulk data.
void store_element(std::byte* at, DataType type, double value);
double load_element(const std::byte* at, DataType type);

}  // namespace gradwire
