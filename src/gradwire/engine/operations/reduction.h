#pragma once

#include <cstddef>

#include "gradwire/base/element.h"

namespace gradwire::engine {

/// out[i] = left[i] op right[i] for `count` elements, computed in the element type (bfloat16 and
/// float16: in float32, rounded to nearest even). `mean` adds; finish_reduction() divides. `out`
/// may be `left` or `right`. The order of the operands determines which NaN or zero survives, so
/// callers must follow the schedule's OperandOrder. Bitwise operations require integers:
/// combines(type, op). Any alignment is supported. Thread-safe.
void combine(std::byte* out, const std::byte* left, const std::byte* right, std::size_t count,
             DataType type, ReduceOp op);

/// Applies the final step of a reduction over `ranks` ranks to a complete result: `mean` divides
/// (postscale); other reductions leave it unmodified.
void finish_reduction(std::byte* data, std::size_t count, DataType type, ReduceOp op, int ranks);

}  // namespace gradwire::engine
