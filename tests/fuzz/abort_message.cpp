#include "gradwire/net/abort_message.h"

#include "gradwire/net/frame.h"
#include "tests/fuzz/target.h"

namespace gradwire::fuzz {

std::vector<std::string> seeds() {
  return {string_of(net::encode_abort({ErrorKind::disconnected, 3, "rank 3 has died"})),
          string_of(net::encode_abort({ErrorKind::aborted, -1, ""})),
          string_of(net::encode_abort({ErrorKind::timeout, 1, std::string(5000, 'x')}))};
}

void repair(std::string& input) {
  if (input.size() > net::kMaxControlPayload)
    input.resize(net::kMaxControlPayload);  // A frame does the same.
}

/// Any input is an abort of a valid kind, and is forwarded unchanged.
void test(std::string_view input) {
  if (input.size() > net::kMaxControlPayload) return;
  constexpr Rank kFrom = 5;
  const net::AbortMessage message = net::decode_abort(bytes_of(input), kFrom);
  expect(message.kind <= ErrorKind::aborted, "the kind of error exists");
  expect(!name_of(message.kind).empty(), "the kind of error has a name");
  expect(message.text.size() <= net::kMaxControlPayload, "the reason is no longer than a frame");
  expect(input.size() >= 5 || message.origin == kFrom,
         "what says nothing is of the rank that sent it");
  const std::vector<std::byte> again = net::encode_abort(message);
  expect(again.size() <= net::kMaxControlPayload, "it fits into a frame");
  const net::AbortMessage same = net::decode_abort(again, kFrom);
  expect(same.kind == message.kind && same.origin == message.origin && same.text == message.text,
         "what is passed on says the same");
}

}  // namespace gradwire::fuzz
