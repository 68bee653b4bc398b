#include "gradwire/net/frame.h"

#include <array>
#include <optional>

#include "gradwire/base/random.h"
#include "gradwire/engine/links/inbox.h"
#include "gradwire/net/payload_checksum.h"
#include "tests/fuzz/frames.h"
#include "tests/fuzz/target.h"

namespace gradwire::fuzz {
namespace {

/// The first byte of an input determines how the stream is split, and where payloads are stored.
std::string with_mode(char mode, const std::string& stream) {
  return mode + stream;
}

struct Seen {
  std::vector<net::FrameHeader> headers;
  std::vector<std::string> payloads;
  bool ended_in_error = false;
};

/// Reference implementation: reads the whole stream at once.
Seen read_whole(std::string_view stream) {
  Seen seen;
  while (stream.size() >= net::kFrameHeaderBytes) {
    const Result<net::FrameHeader> header =
        net::decode(bytes_of(stream).first<net::kFrameHeaderBytes>());
    const bool follows = header && header->number == seen.headers.size();
    if (follows && stream.size() - net::kFrameHeaderBytes < header->length) return seen;
    const std::string_view payload =
        follows ? stream.substr(net::kFrameHeaderBytes, header->length) : std::string_view();
    if (!follows || net::payload_checksum(bytes_of(payload)) != header->payload_checksum) {
      seen.ended_in_error = true;
      return seen;
    }
    seen.headers.push_back(*header);
    seen.payloads.emplace_back(payload);
    stream.remove_prefix(net::kFrameHeaderBytes + payload.size());
  }
  return seen;
}

/// Stores received frames. Memory for a payload has exactly its size.
class Keeper final : public engine::Inbox::Handler {
 public:
  explicit Keeper(bool xors) : xors_(xors) {}

  Result<engine::PayloadSink> begin(const net::FrameHeader& header) override {
    landed_.assign(header.length, std::byte{0});
    landed_.shrink_to_fit();
    ones_.assign(header.length, std::byte{1});
    if (header.channel == kThrownAway) return engine::PayloadSink{};
    const bool reduces = xors_ && header.length % size_of(kType) == 0;
    return engine::PayloadSink{.to = landed_.data(),
                               .operand = reduces ? ones_.data() : nullptr,
                               .type = kType,
                               .op = ReduceOp::bit_xor,
                               .whole = header.message % 2 == 1};
  }

  Status complete(const net::FrameHeader& header) override {
    const bool reduced = xors_ && header.length % size_of(kType) == 0;
    for (std::byte& byte : landed_) byte ^= std::byte(reduced ? 1 : 0);
    seen_.headers.push_back(header);
    seen_.payloads.push_back(string_of(landed_));
    return {};
  }

  const Seen& seen() const { return seen_; }

  static constexpr std::uint32_t kThrownAway = 9;

 private:
  static constexpr DataType kType = DataType::int64;

  bool xors_;
  std::vector<std::byte> landed_;
  std::vector<std::byte> ones_;
  Seen seen_;
};

/// Passes the stream in pieces whose sizes depend on `mode`. Returns false at an error.
bool read_in_pieces(engine::Inbox& inbox, Keeper& keeper, std::string_view stream,
                    std::uint8_t mode) {
  std::array<std::byte, 256> shared;
  Random random(mode);
  while (!stream.empty()) {
    const std::size_t max_bytes = 1 + random.below(random.one_in(3) ? 8 : 1024);
    if (mode % 2 == 0) {
      const std::string_view piece = stream.substr(0, max_bytes);
      if (!inbox.take(bytes_of(piece), keeper)) return false;
      stream.remove_prefix(piece.size());
      continue;
    }
    const engine::Inbox::Reading reading = inbox.read_pieces(shared);
    std::size_t size = 0;
    for (std::size_t i = 0; i < reading.count; ++i) {
      const std::string_view piece =
          stream.substr(0, std::min(max_bytes - size, reading.pieces[i].size()));
      std::copy_n(bytes_of(piece).begin(), piece.size(), reading.pieces[i].begin());
      stream.remove_prefix(piece.size());
      size += piece.size();
    }
    if (!inbox.received(shared, size, keeper)) return false;
  }
  return true;
}

}  // namespace

std::vector<std::string> seeds() {
  FrameStream small;
  small.add({.type = net::FrameType::announce, .channel = 1, .sequence = 7}, std::string(48, 'a'));
  small.add({.type = net::FrameType::data, .channel = 1, .sequence = 7}, std::string(80, 'd'));
  small.add({.type = net::FrameType::ping, .message = 1}, "");
  small.add({.type = net::FrameType::data, .message = 1, .offset = 80}, std::string(33, 'e'));
  small.add({.type = net::FrameType::rail_notice}, std::string(32, '\1'));
  small.add({.type = net::FrameType::goodbye}, "");
  FrameStream large;
  large.add({.type = net::FrameType::data, .channel = Keeper::kThrownAway}, std::string(1000, 'f'));
  large.add({.type = net::FrameType::data, .message = 3}, std::string(1024, 'g'));
  large.add({.type = net::FrameType::abort}, std::string(net::kMaxControlPayload, 'h'));
  std::vector<std::string> all;
  for (const char mode : {'\0', '\1', '\2', '\3'}) {
    all.push_back(with_mode(mode, small.text()));
    all.push_back(with_mode(mode, large.text()));
  }
  return all;
}

void repair(std::string& input) {
  if (input.size() > 1) seal_frames(std::span(input).subspan(1), 0);
}

/// However a stream is split and wherever its payloads are stored, the result is the same frames,
/// and an error at the same frame.
void test(std::string_view input) {
  Reader reader(input);
  const std::uint8_t mode = reader.byte();
  const std::string_view stream = reader.rest();
  const Seen truth = read_whole(stream);
  engine::Inbox inbox(/*checksums=*/true);
  Keeper keeper(/*xors=*/mode / 2 % 2 == 1);
  const bool fine = read_in_pieces(inbox, keeper, stream, mode);
  const Seen& seen = keeper.seen();
  expect(fine == !truth.ended_in_error, "errors are the same");
  expect(seen.headers.size() == truth.headers.size(), "as many frames come out");
  expect(inbox.frames() == truth.headers.size(), "and are counted");
  for (std::size_t i = 0; i < truth.headers.size(); ++i) {
    const net::FrameHeader& header = seen.headers[i];
    expect(header.type == truth.headers[i].type && header.offset == truth.headers[i].offset,
           "with the same headers");
    if (header.channel == Keeper::kThrownAway) continue;
    expect(seen.payloads[i] == truth.payloads[i], "and the same payloads");
    expect(header.length <= net::kMaxDataPayload, "none larger than may be");
  }
}

}  // namespace gradwire::fuzz
