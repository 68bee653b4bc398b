#include "gradwire/federated/remote/messages.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include <fmt/format.h>

#include "gradwire/base/check.h"

namespace gradwire::federated {
namespace {

constexpr std::uint16_t kFirstAnswer = 256;
constexpr std::size_t kMaxSegments = 16;
constexpr std::array<std::string_view, 9> kLeaveReasons{
    "it is not eligible any more",
    "it was stopped",
    "the time of the round was over",
    "the work is beyond its limits",
    "by its state file it was in this round, or a later one, before",
    "it cannot use the plan or the model",
    "its training failed",
    "its update is not finite",
    "it refuses the server's order"};
/// Times are those of rounds and days.
constexpr double kMaxSeconds = 1e9;

class FieldWriter {
 public:
  explicit FieldWriter(Message& message) : message_(message) {}

  void operator()(std::int64_t value) { put(static_cast<std::uint64_t>(value)); }
  void operator()(double value) { put(std::bit_cast<std::uint64_t>(value)); }
  void operator()(const std::string& text) {
    GRADWIRE_CHECK(text.size() <= kMaxTextBytes);
    put(text.size());
    const std::size_t at = message_.head.size();
    message_.head.resize(at + text.size());
    if (!text.empty()) std::memcpy(message_.head.data() + at, text.data(), text.size());
  }
  void operator()(const std::vector<std::int64_t>& numbers) {
    put(numbers.size());
    for (const std::int64_t number : numbers) (*this)(number);
  }
  void operator()(const Blob& blob) { message_.tail = blob; }

 private:
  void put(std::uint64_t value) {
    const std::size_t at = message_.head.size();
    message_.head.resize(at + sizeof(value));
    store_little_endian(message_.head.data() + at, value);
  }

  Message& message_;
};

class FieldReader {
 public:
  explicit FieldReader(const Blob& body) : body_(body) {}

  void operator()(std::int64_t& value) { value = static_cast<std::int64_t>(get()); }
  void operator()(double& value) {
    value = std::bit_cast<double>(get());
    is_right_ = is_right_ && value >= 0 && value <= kMaxSeconds;  // All are times; false for NaN.
  }
  void operator()(std::string& text) {
    const std::uint64_t size = get();
    if (!(is_right_ = is_right_ && size <= std::min(left(), kMaxTextBytes))) return;
    text.assign(reinterpret_cast<const char*>(body_.data.get() + at_), size);
    at_ += size;
  }
  void operator()(std::vector<std::int64_t>& numbers) {
    const std::uint64_t size = get();
    if (!(is_right_ = is_right_ && size <= 2 * kMaxSegments)) return;
    numbers.resize(size);
    for (std::int64_t& number : numbers) (*this)(number);
  }
  void operator()(Blob& blob) {
    blob = {std::shared_ptr<const std::byte>(body_.data, body_.data.get() + at_), left()};
    at_ = body_.size;
  }
  bool is_complete() const { return is_right_ && left() == 0; }

 private:
  std::size_t left() const { return body_.size - at_; }
  std::uint64_t get() {
    if (!(is_right_ = is_right_ && left() >= sizeof(std::uint64_t))) return 0;
    const auto value = load_little_endian<std::uint64_t>(body_.data.get() + at_);
    at_ += sizeof(value);
    return value;
  }

  const Blob& body_;
  std::size_t at_ = 0;
  bool is_right_ = true;
};

template <class M, class Visitor>
void each_field(M& message, Visitor&& visit) {
  std::apply([&](auto&... fields) { (visit(fields), ...); },
             std::remove_const_t<M>::fields(message));
}

template <class Variant>
Message encode_any(const Variant& any, std::uint16_t first, std::uint64_t instance,
                   std::int64_t round) {
  Message message;
  message.head.resize(MessageHeader::kBytes);
  std::visit([&](const auto& one) { each_field(one, FieldWriter(message)); }, any);
  std::byte* at = message.head.data();
  store_little_endian(at, kMessageVersion);
  store_little_endian(at + 2, static_cast<std::uint16_t>(first + any.index()));
  store_little_endian(at + 8, instance);
  store_little_endian(at + 16, static_cast<std::uint64_t>(round));
  store_little_endian(at + 24, static_cast<std::uint64_t>(message.head.size() + message.tail.size -
                                                          MessageHeader::kBytes));
  return message;
}

/// The value of the variant with this place.
template <class Variant, std::size_t... I>
Variant blank(std::size_t index, std::index_sequence<I...>) {
  Variant made;
  ((I == index ? void(made = std::variant_alternative_t<I, Variant>{}) : void()), ...);
  return made;
}

template <class Variant>
Result<Variant> decode_any(const MessageHeader& header, std::uint16_t first, const Blob& body) {
  constexpr std::size_t kKinds = std::variant_size_v<Variant>;
  const std::size_t index = static_cast<std::size_t>(header.kind) - first;
  if (header.kind < first || index >= kKinds)
    return failure(ErrorKind::corrupted, fmt::format("no message is of kind {}", header.kind));
  auto any = blank<Variant>(index, std::make_index_sequence<kKinds>());
  FieldReader reader(body);
  std::visit([&](auto& one) { each_field(one, reader); }, any);
  const bool is_possible = std::visit(
      [](const auto& one) {
        if constexpr (requires { one.is_possible(); }) return one.is_possible();
        return true;
      },
      any);
  if (!reader.is_complete() || !is_possible) {
    return failure(ErrorKind::corrupted,
                   fmt::format("{} bytes are no message of kind {}", body.size, header.kind));
  }
  return any;
}

}  // namespace

Blob Blob::of(std::vector<std::byte> bytes) {
  auto owner = std::make_shared<const std::vector<std::byte>>(std::move(bytes));
  const std::size_t size = owner->size();
  return {std::shared_ptr<const std::byte>(owner, owner->data()), size};
}

std::string_view name_of(const Question& question) {
  static constexpr std::array<std::string_view, std::variant_size_v<Question>> kNames{
      "check-in", "fetch",          "ready",         "update",
      "leave",    "secure message", "masked update", "description"};
  const auto* secure = std::get_if<SecureMessage>(&question);
  if (secure == nullptr || secure->message.size == 0) return kNames[question.index()];
  const auto kind = static_cast<std::uint8_t>(secure->message.bytes().front());
  if (kind == KeyAdvert::kKind) return "keys";
  if (kind == SealedShares::kKind) return "shares";
  if (kind == AliveSignature::kKind) return "signature";
  return kind == UnmaskingShares::kKind ? "unmasking" : kNames[question.index()];
}

std::string_view text_of(LeaveReason reason) {
  return kLeaveReasons[static_cast<std::size_t>(reason)];
}

bool Leave::is_possible() const {
  return reason >= 0 && reason < std::ssize(kLeaveReasons);
}

Error Refusal::error() const {
  const bool is_known = kind >= 0 && kind <= static_cast<std::int64_t>(ErrorKind::aborted);
  return {is_known ? static_cast<ErrorKind>(kind) : ErrorKind::refused, reason};
}

Result<MessageHeader> decode_header(ConstBytes bytes) {
  GRADWIRE_CHECK(bytes.size() == MessageHeader::kBytes);
  const auto version = load_little_endian<std::uint16_t>(bytes.data());
  if (version != kMessageVersion) {
    return failure(ErrorKind::mismatch,
                   fmt::format("the other end has version {} of federated messages, and this one "
                               "version {}: install the same gradwire on both",
                               version, kMessageVersion));
  }
  if (load_little_endian<std::uint32_t>(bytes.data() + 4) != 0)
    return failure(ErrorKind::corrupted, "a message has no right header");
  return MessageHeader{
      .kind = load_little_endian<std::uint16_t>(bytes.data() + 2),
      .instance = load_little_endian<std::uint64_t>(bytes.data() + 8),
      .round = static_cast<std::int64_t>(load_little_endian<std::uint64_t>(bytes.data() + 16)),
      .size = load_little_endian<std::uint64_t>(bytes.data() + 24)};
}

Message encode(const Question& question, std::uint64_t instance, std::int64_t round) {
  return encode_any(question, 0, instance, round);
}

Message encode(const Answer& answer, std::int64_t round) {
  return encode_any(answer, kFirstAnswer, 0, round);
}

Result<Question> decode_question(const MessageHeader& header, const Blob& body) {
  return decode_any<Question>(header, 0, body);
}

Result<Answer> decode_answer(const MessageHeader& header, const Blob& body) {
  return decode_any<Answer>(header, kFirstAnswer, body);
}

UploadOrder UploadOrder::of(const Order::Upload& order) {
  UploadOrder made{.bits = order.bits, .weight = order.weight};
  if (!order.secure) return made;
  made.neighbours = order.secure->neighbours;
  made.threshold = order.secure->threshold;
  made.active = order.secure->active ? 1 : 0;
  return made;
}

bool UploadOrder::is_possible() const {
  const auto is_within = [](std::int64_t value, std::int64_t least, std::int64_t most) {
    return value >= least && value <= most;
  };
  return is_within(bits, 1, 64) && is_within(neighbours, 0, kMostNeighbours) &&
         is_within(threshold, 0, kMostNeighbours);
}

std::optional<SecurePolicy> UploadOrder::secure() const {
  if (neighbours == 0) return std::nullopt;
  return SecurePolicy{static_cast<int>(neighbours), static_cast<int>(threshold), active != 0};
}

std::vector<SegmentShape> segments_of(const UpdateShape& shape, int bits) {
  return {{shape.elements, bits}, {shape.metrics, 64}};
}

std::size_t update_bytes(const UpdateShape& shape, int bits) {
  std::size_t bytes = sizeof(std::uint64_t);
  for (const auto& [size, width] : segments_of(shape, bits))
    bytes += 2 * sizeof(std::uint64_t) + ModularVector::packed_bytes(size, width);
  return bytes;
}

std::size_t masked_bytes(const UpdateShape& shape, int bits) {
  std::size_t bytes = sizeof(MaskedInput::kKind) + sizeof(MaskedInput::round);
  for (const auto& [size, width] : segments_of(shape, bits))
    bytes += ModularVector::packed_bytes(size, width);
  return bytes;
}

namespace {

constexpr std::size_t kSecureBytes = 256;  // A message without its lists; an advert has less.

}  // namespace

std::size_t longest_secure_message(std::size_t neighbours) {
  return kSecureBytes + neighbours * sizeof(SealedShare);
}

std::size_t secure_up_bytes(std::size_t neighbours) {
  return longest_secure_message(neighbours) + 3 * kSecureBytes + neighbours * sizeof(Share);
}

Update to_update(const Contribution& contribution) {
  Update update;
  std::vector<std::byte> packed;
  for (const ModularVector& segment : contribution) {
    update.shape.push_back(static_cast<std::int64_t>(segment.size()));
    update.shape.push_back(segment.bits());
    segment.append_packed(packed);
  }
  update.packed = Blob::of(std::move(packed));
  return update;
}

Result<Contribution> contribution_in(const Update& update, const UpdateShape& shape, int bits) {
  std::vector<std::int64_t> expected;
  std::size_t expected_bytes = 0;
  for (const auto& [size, width] : segments_of(shape, bits)) {
    expected.push_back(static_cast<std::int64_t>(size));
    expected.push_back(width);
    expected_bytes += ModularVector::packed_bytes(size, width);
  }
  if (update.shape != expected || update.packed.size != expected_bytes) {
    return failure(ErrorKind::corrupted,
                   fmt::format("the update is not of {} elements of {} bits and {} metrics",
                               shape.elements, bits, shape.metrics));
  }
  Contribution contribution;
  ConstBytes rest = update.packed.bytes();
  for (const auto& [size, width] : segments_of(shape, bits)) {
    const std::size_t bytes = ModularVector::packed_bytes(size, width);
    GRADWIRE_ASSIGN_OR_RETURN(auto segment, ModularVector::unpack(rest.first(bytes), size, width));
    contribution.push_back(std::move(segment));
    rest = rest.subspan(bytes);
  }
  return contribution;
}

}  // namespace gradwire::federated
