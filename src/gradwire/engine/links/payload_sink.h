#pragma once

#include "gradwire/base/bytes.h"
#include "gradwire/base/element.h"
#include "gradwire/base/error.h"
#include "gradwire/engine/operations/in_flight_operation.h"
#include "gradwire/net/frame.h"
#include "gradwire/schedule/schedule.h"

namespace gradwire::engine {

/// Destination of a frame's payload.
struct PayloadSink {
  std::byte* to = nullptr;             ///< Null: the payload is verified and dropped.
  const std::byte* operand = nullptr;  ///< Not null: to = operand combined with the payload.
  DataType type = DataType::uint8;
  ReduceOp op = ReduceOp::sum;
  schedule::OperandOrder order = schedule::OperandOrder::local_first;
  bool whole = false;  ///< Nothing may be written before the whole frame is received and verified.
};

/// Writes payload bytes that start `offset` bytes into their frame to the destination. Bytes to be
/// reduced must be whole elements.
void write_payload(const PayloadSink& sink, std::size_t offset, ConstBytes bytes);

/// Returns the destination of a data frame from `from` in an operation. `in_order`: there is one
/// stream, so frames arrive in order. Fails with corrupted if the frame fits nowhere: a peer's data
/// is written only where the program says, once, and after its dependencies.
Result<PayloadSink> resolve_sink(const InFlightOperation& flight, Rank from,
                                 const net::FrameHeader& header, bool in_order);

}  // namespace gradwire::engine
