#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace gradwire {

/// Element types that collectives carry. The values travel on the wire: append only.
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

/// How elements combine. `mean` is the sum divided by the number of ranks; on integers it
/// truncates towards zero. A NaN in any operand of min or max is the result. The bitwise ones are
/// for integers alone. Values are on the wire.
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

/// Whether elements of the type can be combined so.
bool combines(DataType type, ReduceOp op);

/// Bytes of one element.
std::size_t size_of(DataType type);

/// "float32", "bfloat16", ...
std::string_view name_of(DataType type);
std::string_view name_of(ReduceOp op);

/// The inverse of name_of; nothing for an unknown name.
std::optional<DataType> data_type_named(std::string_view name);
std::optional<ReduceOp> reduce_op_named(std::string_view name);

/// Every type, and the operations that all of them have, for tables, tests and help texts.
std::span<const DataType> all_data_types();
std::span<const ReduceOp> all_reduce_ops();

}  // namespace gradwire
