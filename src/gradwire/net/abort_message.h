#pragma once

#include <string>
#include <vector>

#include "gradwire/base/bytes.h"
#include "gradwire/base/error.h"
#include "gradwire/base/types.h"

namespace gradwire::net {

/// Sent by a failing rank to its peers: the reason, and the rank that detected the failure first.
struct AbortMessage {
  ErrorKind kind = ErrorKind::aborted;
  Rank origin = -1;
  std::string text;  ///< Truncated to fit a control frame.
};

std::vector<std::byte> encode_abort(const AbortMessage& message);

/// Never fails: a malformed message decodes to an abort with `from` as its origin.
AbortMessage decode_abort(ConstBytes bytes, Rank from);

}  // namespace gradwire::net
