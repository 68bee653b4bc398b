#pragma once

#include "gradwire/base/bytes.h"
#include "gradwire/base/element.h"
#include "gradwire/base/error.h"
#include "gradwire/comm/flight.h"
#include "gradwire/net/frame.h"
#include "gradwire/schedule/schedule.h"

namespace gradwire {

/// Where the payload of a frame goes.
struct Landing {
  std::byte* to = nullptr;             ///< Null: the payload is checked and thrown away.
  const std::byte* operand = nullptr;  ///< Not null: to = operand combined with the payload.
  DataType type = DataType::uint8;
  ReduceOp op = ReduceOp::sum;
  Order order = Order::local_first;
  bool whole = false;  ///< Nothing may be touched before all of the frame is there, and right.
};

/// Puts payload bytes, `offset` bytes into their frame, where they belong. Bytes that are to be
/// reduced must be whole elements.
void land(const Landing& landing, std::size_t offset, ConstBytes bytes);

/// Where a data frame from `from` belongs in an operation. `in_order`: there is one stream, on
/// which nothing overtakes. Errors: corrupted, if it fits nowhere: a peer's data is written only
/// where the program says, once, and after what it must follow.
Result<Landing> landing_of(const Flight& flight, Rank from, const FrameHeader& header,
                           bool in_order);

}  // namespace gradwire
