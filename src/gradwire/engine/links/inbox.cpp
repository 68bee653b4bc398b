#include "gradwire/engine/links/inbox.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>

namespace gradwire::engine {

namespace {

/// Copying at least this many bytes costs more than a system call.
constexpr std::size_t kMinDirectRead = 64 * 1024;

tl::unexpected<Error> out_of_order(std::uint64_t number, std::uint64_t due) {
  return failure(
      ErrorKind::corrupted,
      fmt::format("frame {} of the stream when frame {} was due: whole frames were {} in "
                  "transit, which neither TCP nor gradwire does; look for a proxy or "
                  "tunnel between the two hosts",
                  number, due, number > due ? "lost" : "repeated"));
}

}  // namespace

Inbox::Reading Inbox::read_pieces(Bytes shared) const {
  Reading reading;
  if (reads_directly()) {
    reading.pieces[reading.count++] = {sink_.to + received_, remaining()};
    reading.size += remaining();
  }
  // Bytes behind the next header could not be read directly, and would have to be copied.
  if (direct_ >= kMinDirectRead) shared = shared.first(net::kFrameHeaderBytes);
  reading.pieces[reading.count++] = shared;
  reading.size += shared.size();
  return reading;
}

Status Inbox::received(Bytes shared, std::size_t size, Handler& handler) {
  if (reads_directly()) {
    const std::size_t direct = std::min(size, remaining());
    account({sink_.to + received_, direct});
    size -= direct;
    GRADWIRE_RETURN_IF_ERROR(finish_if_complete(handler));
  }
  return take(shared.first(size), handler);
}

Status Inbox::take(ConstBytes bytes, Handler& handler) {
  while (!bytes.empty()) {
    if (partial_bytes_ == 0 && bytes.size() >= unit()) {
      const Result<std::size_t> used = consume(bytes, handler);
      if (!used) return tl::unexpected(used.error());
      bytes = bytes.subspan(*used);
      continue;
    }
    bytes = add_partial(bytes);
    if (partial_bytes_ < unit()) break;
    const ConstBytes whole(partial_.data(), std::exchange(partial_bytes_, 0));
    if (const auto used = consume(whole, handler); !used) return tl::unexpected(used.error());
  }
  return {};
}

/// Returns the size of the smallest piece that can be processed: a header, or an element to reduce.
std::size_t Inbox::unit() const {
  if (!in_frame_) return net::kFrameHeaderBytes;
  return sink_.operand == nullptr ? 1 : size_of(sink_.type);
}

/// Appends bytes to the partial unit, up to its size. Returns the remaining bytes.
ConstBytes Inbox::add_partial(ConstBytes bytes) {
  const std::size_t more = std::min(unit() - partial_bytes_, bytes.size());
  std::memcpy(partial_.data() + partial_bytes_, bytes.data(), more);
  partial_bytes_ += more;
  return bytes.subspan(more);
}

/// Processes a header or a piece of payload at the start of `bytes`, which has at least one unit.
/// Returns the number of bytes used.
Result<std::size_t> Inbox::consume(ConstBytes bytes, Handler& handler) {
  if (in_frame_) {
    const std::size_t landed = take_payload(bytes);
    if (Status ended = finish_if_complete(handler); !ended) return tl::unexpected(ended.error());
    return landed;
  }
  if (Status begun = begin(bytes, handler); !begun) return tl::unexpected(begun.error());
  return net::kFrameHeaderBytes;
}

Status Inbox::begin(ConstBytes bytes, Handler& handler) {
  const Result<net::FrameHeader> header = net::decode(bytes.first<net::kFrameHeaderBytes>());
  if (!header) return tl::unexpected(header.error());
  if (header->number != frames_) return out_of_order(header->number, frames_);
  Result<PayloadSink> sink = handler.begin(*header);
  if (!sink) return tl::unexpected(sink.error());
  header_ = *header;
  sink_ = final_sink_ = *sink;
  if (sink_.whole) {
    if (stage_.size() < header_.length) stage_.resize(header_.length);
    sink_ = {.to = stage_.data()};
  }
  received_ = 0;
  in_frame_ = true;
  direct_ = reads_directly() ? header_.length : 0;
  if (checksums_) checksum_.begin(header_.length);
  return finish_if_complete(handler);
}

std::size_t Inbox::take_payload(ConstBytes bytes) {
  std::size_t size = std::min(bytes.size(), remaining());
  if (sink_.operand != nullptr) size -= size % size_of(sink_.type);
  write_payload(sink_, received_, bytes.first(size));
  account(bytes.first(size));
  return size;
}

void Inbox::account(ConstBytes payload) {
  if (checksums_) checksum_.add(payload);
  received_ += payload.size();
}

Status Inbox::finish_if_complete(Handler& handler) {
  if (!in_frame_ || remaining() > 0) return {};
  in_frame_ = false;
  if (checksums_ && checksum_.value() != header_.payload_checksum) {
    return failure(ErrorKind::corrupted, "a payload with a wrong checksum");
  }
  if (final_sink_.whole) write_payload(final_sink_, 0, ConstBytes(stage_).first(header_.length));
  sink_ = final_sink_ = {};
  ++frames_;
  return handler.complete(header_);
}

void Inbox::abandon() {
  if (in_frame_) account({partial_.data(), std::exchange(partial_bytes_, 0)});
  sink_ = final_sink_ = {};
}

}  // namespace gradwire::engine
