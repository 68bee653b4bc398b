#pragma once

#include <string>

namespace gradwire {

/// Encoded size of fp32 values, in bytes per value.
struct WireBytes {
  double contribution = 4;  ///< Sent to the rank that reduces.
  double mean = 4;          ///< Sent back.
  bool feedback = false;    ///< Keeps an error-feedback residual, four bytes per value.
  bool coded = false;       ///< An all-to-all and an all-gather in place of an all-reduce.
};

/// Returns the sizes of a codec of codec/catalogue.h, for long tensors and `ranks` ranks. Throws
/// Exception(invalid_argument): an unknown codec; power_sgd and auto, whose sizes depend on more.
WireBytes wire_bytes(const std::string& codec, int ranks);

}  // namespace gradwire
