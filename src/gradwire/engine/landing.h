#pragma once

#include "gradwire/base/bytes.h"
#include "gradwire/base/element.h"
#include "gradwire/base/error.h"
#include "gradwire/engine/flight.h"
#include "gradwire/net/frame.h"
#include "gradwire/schedule/schedule.h"

namespace gradwire {

/// Destination of a frame's payload.
struct Landing {
  std::byte* to = nullptr;             ///< Null: the payload is verified and dropped.
  const std::byte* operand = nullptr;  ///< Not null: to = operand combined with the payload.
  DataType type = DataType::uint8;
  ReduceOp op = ReduceOp::sum;
  Order order = Order::local_first;
  bool whole = false;  ///< Nothing may be written before the whole frame is received and verified.
};

/// Writes payload bytes that start `offset` bytes into their frame to the destination. Bytes to be
/// reduced must be whole elements.
void land(const Landing& landing, std::size_t offset, ConstBytes bytes);

/// Returns the destination of a data frame from `from` in an operation. `in_order`: there is one
/// stream, so frames arrive in order. Fails with corrupted if the frame fits nowhere: a peer's data
/// is written only where the program says, once, and after its dependencies.
Result<Landing> landing_of(const Flight& flight, Rank from, const FrameHeader& header,
                           bool in_order);

}  // namespace gradwire
