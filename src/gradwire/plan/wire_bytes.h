#pragma once

#include <string>

namespace gradwire {

/// What a codec makes of fp32 values, in bytes of each.
struct WireBytes {
  double contribution = 4;  ///< On the way to who adds up.
  double mean = 4;          ///< On the way back.
  bool feedback = false;    ///< What is lost is kept for the next step, four bytes a value.
  bool coded = false;       ///< An all-to-all and an all-gather in place of an all-reduce.
};

/// Of a codec of codec/catalogue.h, for long tensors and so many ranks. Throws
/// Exception(invalid_argument): an unknown one; power_sgd and auto, which depend on more.
WireBytes wire_bytes(const std::string& codec, int ranks);

}  // namespace gradwire
