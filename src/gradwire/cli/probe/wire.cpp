#include "gradwire/cli/probe/wire.h"

#include <algorithm>
#include <array>
#include <cstring>

#include <fmt/format.h>
#include <sched.h>

namespace gradwire::cli {
namespace {

constexpr Duration kSpin = std::chrono::microseconds(200);
constexpr std::uint32_t kMaxTextBytes = 16 << 20;

/// Texts are sent in small acknowledged pieces, so that no packet is large: they must pass where
/// large packets are lost.
constexpr std::size_t kPiece = 512;

ConstBytes bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

/// Concatenates texts, each preceded by its length.
std::string packed(const std::vector<std::string>& texts) {
  std::string all;
  for (const std::string& text : texts) all += fmt::format("{} {}", text.size(), text);
  return all;
}

Result<std::vector<std::string>> unpacked(std::string_view all, int count) {
  std::vector<std::string> texts;
  while (!all.empty()) {
    const std::size_t blank = all.find(' ');
    std::size_t size = 0;
    for (const char digit : all.substr(0, blank)) {
      size = size * 10 + static_cast<std::size_t>(digit - '0');
    }
    if (blank == std::string_view::npos || size > all.size() - blank - 1) break;
    texts.emplace_back(all.substr(blank + 1, size));
    all.remove_prefix(blank + 1 + size);
  }
  if (!all.empty() || static_cast<int>(texts.size()) != count) {
    return failure(ErrorKind::corrupted, "rank 0 forwarded a malformed list of texts");
  }
  return texts;
}

}  // namespace

bool Wire::wait() {
  const net::Deadline deadline = net::Deadline::after(clock_, patience_);
  do {
    transport_.poll(deadline.left(), events_);
  } while (events_.empty() && !deadline.passed());
  return !events_.empty();
}

tl::unexpected<Error> Wire::silent(net::StreamId stream, const char* did) const {
  return failure(
      ErrorKind::timeout,
      fmt::format("{} has {} no bytes for {} s: is its link broken, or its process stuck?",
                  transport_.describe(stream), did,
                  std::chrono::duration<double>(patience_).count()));
}

Status Wire::send(net::StreamId stream, ConstBytes bytes) {
  while (!bytes.empty()) {
    const ConstBytes piece = bytes;
    const auto taken = transport_.write(stream, {&piece, 1});
    if (!taken) return tl::unexpected<Error>(taken.error());
    bytes = bytes.subspan(*taken);
    if (!bytes.empty() && *taken == 0 && !wait()) return silent(stream, "taken");
  }
  return {};
}

Result<std::size_t> Wire::read_some(net::StreamId stream, Bytes bytes) {
  if (!transport_.reads_in_place(stream)) return transport_.read(stream, {&bytes, 1});
  std::size_t got = 0;
  while (got < bytes.size()) {
    const auto there = transport_.peek(stream);
    if (!there && got > 0) break;
    if (!there) return tl::unexpected<Error>(there.error());
    const std::size_t size = std::min(there->size(), bytes.size() - got);
    if (size == 0) break;
    std::memcpy(bytes.data() + got, there->data(), size);
    transport_.consume(stream, size);
    got += size;
  }
  return got;
}

Status Wire::receive(net::StreamId stream, Bytes bytes) {
  return receive_with(stream, bytes, Duration::zero());
}

Status Wire::receive_soon(net::StreamId stream, Bytes bytes) {
  return receive_with(stream, bytes, kSpin);
}

Status Wire::receive_with(net::StreamId stream, Bytes bytes, Duration spin) {
  const Time give_up = clock_.now() + spin;
  while (!bytes.empty()) {
    GRADWIRE_ASSIGN_OR_RETURN(const auto got, read_some(stream, bytes));
    bytes = bytes.subspan(got);
    if (bytes.empty() || got > 0) continue;
    if (spin > Duration::zero() && clock_.now() < give_up) {
      ::sched_yield();
    } else if (!wait()) {
      return silent(stream, "sent");
    }
  }
  return {};
}

Status Wire::send_text(net::StreamId stream, const std::string& text) {
  std::array<std::byte, 4> size;
  store_little_endian(size.data(), static_cast<std::uint32_t>(text.size()));
  GRADWIRE_RETURN_IF_ERROR(send(stream, size));
  for (ConstBytes rest = bytes_of(text); !rest.empty();) {
    const ConstBytes piece = rest.first(std::min(rest.size(), kPiece));
    GRADWIRE_RETURN_IF_ERROR(send(stream, piece));
    std::array<std::byte, 1> seen;
    GRADWIRE_RETURN_IF_ERROR(receive(stream, seen));
    rest = rest.subspan(piece.size());
  }
  return {};
}

Result<std::string> Wire::receive_text(net::StreamId stream) {
  std::array<std::byte, 4> size;
  GRADWIRE_RETURN_IF_ERROR(receive(stream, size));
  const auto length = load_little_endian<std::uint32_t>(size.data());
  if (length > kMaxTextBytes) {
    return failure(ErrorKind::corrupted,
                   fmt::format("{} sent an unexpected message", transport_.describe(stream)));
  }
  std::string text(length, '\0');
  for (Bytes rest = std::as_writable_bytes(std::span(text)); !rest.empty();) {
    const Bytes piece = rest.first(std::min(rest.size(), kPiece));
    GRADWIRE_RETURN_IF_ERROR(receive(stream, piece));
    constexpr std::array<std::byte, 1> kSeen = {};
    GRADWIRE_RETURN_IF_ERROR(send(stream, kSeen));
    rest = rest.subspan(piece.size());
  }
  return text;
}

Result<std::vector<std::string>> share(Wire& wire, Rank rank, int ranks, const std::string& mine) {
  if (rank != 0) {
    GRADWIRE_RETURN_IF_ERROR(wire.send_text({.peer = 0}, mine));
    GRADWIRE_ASSIGN_OR_RETURN(const auto all, wire.receive_text({.peer = 0}));
    return unpacked(all, ranks);
  }
  std::vector<std::string> texts{mine};
  for (Rank peer = 1; peer < ranks; ++peer) {
    GRADWIRE_ASSIGN_OR_RETURN(auto text, wire.receive_text({.peer = peer}));
    texts.push_back(std::move(text));
  }
  const std::string all = packed(texts);
  for (Rank peer = 1; peer < ranks; ++peer) {
    GRADWIRE_RETURN_IF_ERROR(wire.send_text({.peer = peer}, all));
  }
  return texts;
}

}  // namespace gradwire::cli
