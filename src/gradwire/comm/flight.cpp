#include "gradwire/comm/flight.h"

namespace gradwire {

Fingerprint Flight::fingerprint_for(Rank peer) const {
  Fingerprint fingerprint = operation.fingerprint();
  if (const Splits* splits = operation.request().splits.get()) {
    const auto part = static_cast<std::uint32_t>(peer);
    const auto elements = [&](Buffer buffer) {
      return splits->begin(buffer, part + 1) - splits->begin(buffer, part);
    };
    fingerprint.sent = elements(Buffer::input);
    fingerprint.expected = elements(Buffer::output);
  }
  return fingerprint;
}

Rank Flight::awaits() {
  const auto& ops = operation.program().program.ops;
  while (awaited < ops.size() && (!is_receive(ops[awaited]) || operation.complete(awaited))) {
    ++awaited;
  }
  return awaited < ops.size() ? ops[awaited].peer : -1;
}

}  // namespace gradwire
