#include "gradwire/comm/inbox.h"

#include <algorithm>
#include <cstring>

#include "gradwire/base/check.h"
#include "gradwire/base/crc32c.h"

namespace gradwire {

Inbox::Reading Inbox::where_to_read(Bytes shared) {
  GRADWIRE_CHECK(shared.size() > carry_.size());
  Reading reading;
  if (lands_directly()) {
    reading.pieces[reading.count++] = {landing_.to + landed_, remaining()};
  }
  std::memcpy(shared.data(), carry_.data(), carried_);
  reading.pieces[reading.count++] = shared.subspan(carried_);
  return reading;
}

Status Inbox::received(Bytes shared, std::size_t size, Handler& handler) {
  if (lands_directly()) {
    const std::size_t direct = std::min(size, remaining());
    account({landing_.to + landed_, direct});
    size -= direct;
    if (Status ended = end_if_full(handler); !ended) return ended;
  }
  ConstBytes rest = shared.first(carried_ + size);
  carried_ = 0;
  while (true) {
    const Result<std::size_t> used = consume(rest, handler);
    if (!used) return tl::unexpected(used.error());
    rest = rest.subspan(*used);
    if (*used == 0) break;
  }
  GRADWIRE_CHECK(rest.size() < carry_.size());
  carried_ = rest.size();
  std::memcpy(carry_.data(), rest.data(), rest.size());
  return {};
}

/// Takes the next header or piece of payload off `bytes`; 0 if more must come first.
Result<std::size_t> Inbox::consume(ConstBytes bytes, Handler& handler) {
  if (in_frame_) {
    const std::size_t landed = take_payload(bytes);
    if (Status ended = end_if_full(handler); !ended) return tl::unexpected(ended.error());
    return landed;
  }
  if (bytes.size() < kFrameHeaderBytes) return 0;
  if (Status begun = begin(bytes, handler); !begun) return tl::unexpected(begun.error());
  return kFrameHeaderBytes;
}

Status Inbox::begin(ConstBytes bytes, Handler& handler) {
  const Result<FrameHeader> header = decode(bytes.first<kFrameHeaderBytes>());
  if (!header) return tl::unexpected(header.error());
  Result<Landing> landing = handler.begin(*header);
  if (!landing) return tl::unexpected(landing.error());
  header_ = *header;
  landing_ = *landing;
  landed_ = 0;
  crc_ = 0;
  in_frame_ = true;
  return end_if_full(handler);
}

std::size_t Inbox::take_payload(ConstBytes bytes) {
  std::size_t size = std::min(bytes.size(), remaining());
  if (landing_.operand != nullptr) size -= size % size_of(landing_.type);
  land(landing_, landed_, bytes.first(size));
  account(bytes.first(size));
  return size;
}

void Inbox::account(ConstBytes payload) {
  crc_ = crc32c(payload, crc_);
  landed_ += payload.size();
}

Status Inbox::end_if_full(Handler& handler) {
  if (!in_frame_ || remaining() > 0) return {};
  in_frame_ = false;
  if (crc_ != header_.payload_crc) {
    return failure(ErrorKind::corrupted, "a payload whose checksum is wrong");
  }
  landing_ = {};
  return handler.complete(header_);
}

}  // namespace gradwire
