#include "gradwire/exchange/coded_piece.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "gradwire/base/random.h"

namespace gradwire::exchange {
namespace {

constexpr std::size_t kAlignment = 16;

std::size_t slot_bytes(const codec::Codec& codec, std::size_t count) {
  if (count == 0) return 0;
  return (codec.encoded_bytes(count) + kAlignment - 1) / kAlignment * kAlignment;
}

std::span<float> piece_of(std::span<float> values, CodedRange range) {
  return values.empty() ? values : values.subspan(range.begin, range.count());
}

}  // namespace

CodecPair::CodecPair(std::shared_ptr<const codec::Codec> codec, int ranks)
    : sent(std::move(codec)) {
  mean = sent->for_mean(ranks);
  if (!mean) mean = sent;
}

void CodedPiece::SharedBuffer::resize(std::size_t bytes) {
  if (bytes == size) return;
  // Zeros, because the padding between slots is sent too.
  memory = std::shared_ptr<std::byte[]>(new std::byte[bytes]());  // NOLINT
  size = bytes;
}

Bytes CodedPiece::SharedBuffer::slice(std::size_t begin, std::size_t count) const {
  return {memory.get() + begin, count};
}

LentSpan CodedPiece::SharedBuffer::lend(std::size_t begin, std::size_t count) const {
  return {memory.get() + begin, count, DataType::uint8, memory};
}

CodedPiece::CodedPiece(CodedPieceLayout layout, Rank self)
    : layout_(std::move(layout)), self_(self) {}

std::size_t CodedPiece::sent_bytes(std::size_t part) const {
  return slot_bytes(*sent_codec_, layout_.parts[part].count());
}

/// The same on all ranks and for contributions and means: codecs that need identical random numbers
/// everywhere derive them from it.
std::uint64_t CodedPiece::seed_of(std::size_t part) const {
  return mixed_seed({seed_, part});
}

void CodedPiece::begin(const CodecPair& codecs, std::uint64_t seed) {
  sent_codec_ = codecs.sent;
  mean_codec_ = codecs.mean;
  seed_ = seed;
}

void CodedPiece::allocate_buffers() {
  std::size_t sent = 0;
  for (std::size_t part = 0; part < ranks(); ++part) sent += sent_bytes(part);
  sent_.resize(sent);
  received_.resize(ranks() * sent_bytes(static_cast<std::size_t>(self_)));
}

void CodedPiece::encode(std::span<const float> unit, std::span<float> residual) {
  allocate_buffers();
  std::size_t begin = 0;
  for (std::size_t part = 0; part < ranks(); ++part) {
    const CodedRange range = layout_.parts[part];
    if (range.count() == 0) continue;
    sent_codec_->encode(unit.subspan(range.begin, range.count()), piece_of(residual, range),
                        seed_of(part),
                        sent_.slice(begin, sent_codec_->encoded_bytes(range.count())));
    begin += sent_bytes(part);
  }
}

Work CodedPiece::exchange(Communicator& communicator, const OperationOptions& options) {
  std::vector<std::size_t> sent;
  for (std::size_t part = 0; part < ranks(); ++part) sent.push_back(sent_bytes(part));
  const LentSpan input = sent_.lend(0, sent_.size);
  const LentSpan output = received_.lend(0, received_.size);
  // The same on all ranks, as the choice of operation must be.
  if (std::ranges::count(sent, sent.front()) == std::ssize(sent))
    return communicator.all_to_all(input, output, options);
  const std::vector<std::size_t> received(ranks(), sent[static_cast<std::size_t>(self_)]);
  return communicator.all_to_all(input, output, sent, received, options);
}

Status CodedPiece::store_mean(std::span<float> unit) const {
  return make_mean(unit.subspan(own().begin, own().count()));
}

/// Computes the mean of this rank's part from the received contributions.
Status CodedPiece::make_mean(std::span<float> mean) const {
  const auto part = static_cast<std::size_t>(self_);
  for (std::size_t r = 0; r < ranks(); ++r) {
    const ConstBytes encoded =
        received_.slice(r * sent_bytes(part), sent_codec_->encoded_bytes(mean.size()));
    const Status decoded = r == 0 ? sent_codec_->decode(encoded, seed_of(part), mean)
                                  : sent_codec_->decode_add(encoded, seed_of(part), mean);
    if (!decoded) return decoded;
  }
  const auto divisor = static_cast<float>(ranks());
  for (float& value : mean) value /= divisor;
  return {};
}

Status CodedPiece::reduce(std::span<float> residual, std::vector<float>& scratch) {
  mean_bytes_ = slot_bytes(*mean_codec_, layout_.parts.front().count());
  means_.resize(ranks() * mean_bytes_);
  const std::size_t count = own().count();
  if (count == 0) return {};
  const auto part = static_cast<std::size_t>(self_);
  if (scratch.size() < count) scratch.resize(count);
  const std::span<float> mean = std::span(scratch).first(count);
  GRADWIRE_RETURN_IF_ERROR(make_mean(mean));
  mean_codec_->encode(mean, residual, seed_of(part),
                      means_.slice(part * mean_bytes_, mean_codec_->encoded_bytes(count)));
  return {};
}

Work CodedPiece::gather(Communicator& communicator, const OperationOptions& options) {
  const LentSpan output = means_.lend(0, means_.size);
  const LentSpan own = means_.lend(static_cast<std::size_t>(self_) * mean_bytes_, mean_bytes_);
  return communicator.all_gather(own, output, options);
}

Status CodedPiece::decode(std::span<float> unit) const {
  for (std::size_t part = 0; part < ranks(); ++part) {
    const CodedRange range = layout_.parts[part];
    if (range.count() == 0) continue;
    const ConstBytes encoded =
        means_.slice(part * mean_bytes_, mean_codec_->encoded_bytes(range.count()));
    const Status decoded = mean_codec_->decode(encoded, seed_of(part), piece_of(unit, range));
    if (!decoded) return decoded;
  }
  return {};
}

}  // namespace gradwire::exchange
