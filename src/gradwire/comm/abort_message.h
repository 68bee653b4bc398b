#pragma once

#include <string>
#include <vector>

#include "gradwire/base/bytes.h"
#include "gradwire/base/error.h"
#include "gradwire/base/types.h"

namespace gradwire {

/// What a rank tells the others when it fails: why, and who noticed first.
struct AbortMessage {
  ErrorKind kind = ErrorKind::aborted;
  Rank origin = -1;
  std::string text;  ///< Cut to fit a control frame.
};

std::vector<std::byte> encode_abort(const AbortMessage& message);

/// Never fails: a garbled message is still an abort, of `from`.
AbortMessage decode_abort(ConstBytes bytes, Rank from);

}  // namespace gradwire
