#pragma once

#include <cstddef>

#include "gradwire/base/element.h"

namespace gradwire {

/// out[i] = left[i] op right[i] for `count` elements, evaluated in the element type (bfloat16 and
/// float16: in float32, rounded to nearest even). `mean` adds; finish_reduction divides. `out` may
/// be `left` or `right`. Which operand is left decides which NaN or zero survives, so callers keep
/// to the schedule's Order. The bitwise operations are for integers: combines(type, op). No
/// alignment needed beyond the element's. Thread-safe.
void combine(std::byte* out, const std::byte* left, const std::byte* right, std::size_t count,
             DataType type, ReduceOp op);

/// What a reduction over `ranks` ranks wants done once to a complete result: `mean` divides,
/// everything else is left as it is.
void finish_reduction(std::byte* data, std::size_t count, DataType type, ReduceOp op, int ranks);

}  // namespace gradwire
