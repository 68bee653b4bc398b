#pragma once

#include <span>

#include "gradwire/base/lent_span.h"
#include "gradwire/base/refuse.h"

namespace gradwire::servers {

/// Multiplies gradients by their weight. Throws Exception(invalid_argument) for other types than
/// float32 and float64.
inline void scale(const LentSpan& data, double factor) {
  if (factor == 1) return;
  const auto multiply = [&]<class Value>(Value* values) {
    for (Value& value : std::span(values, data.count)) value = static_cast<Value>(value * factor);
  };
  if (data.type == DataType::float32) return multiply(static_cast<float*>(data.data));
  if (data.type == DataType::float64) return multiply(static_cast<double*>(data.data));
  refuse("gradients with weights must be float32 or float64");
}

}  // namespace gradwire::servers
