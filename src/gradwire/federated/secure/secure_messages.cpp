#include "gradwire/federated/secure/secure_messages.h"

#include <algorithm>
#include <concepts>
#include <string_view>
#include <tuple>
#include <type_traits>

#include <fmt/format.h>

namespace gradwire::federated {
namespace {

class FieldWriter {
 public:
  explicit FieldWriter(std::vector<std::byte>& to) : to_(to) {}

  template <std::integral Integer>
  void write(Integer value) {
    std::array<std::byte, sizeof value> bytes;
    store_little_endian(bytes.data(), static_cast<std::make_unsigned_t<Integer>>(value));
    write(bytes);
  }
  template <std::size_t size>
  void write(const std::array<std::byte, size>& bytes) {
    to_.insert(to_.end(), bytes.begin(), bytes.end());
  }
  void write(const std::optional<Signature>& signature) {
    write(static_cast<std::uint8_t>(signature.has_value()));
    if (signature) write(*signature);
  }
  template <class T>
  void write(const std::vector<T>& list) {
    write(static_cast<std::uint32_t>(list.size()));
    for (const T& each : list) write(each);
  }
  template <class Fields>
  requires std::is_class_v<Fields>
  void write(const Fields& message) {
    std::apply([&](const auto&... field) { (write(field), ...); }, Fields::fields_of(message));
  }

 private:
  std::vector<std::byte>& to_;
};

/// Beyond the end it reads zeros, and is no longer valid.
class FieldReader {
 public:
  explicit FieldReader(ConstBytes from) : left_(from) {}

  ConstBytes left() const { return left_; }
  bool is_valid() const { return is_valid_; }

  template <std::integral Integer>
  void read(Integer& value) {
    std::array<std::byte, sizeof value> bytes{};
    read(bytes);
    value = static_cast<Integer>(load_little_endian<std::make_unsigned_t<Integer>>(bytes.data()));
  }
  template <std::size_t size>
  void read(std::array<std::byte, size>& bytes) {
    is_valid_ = is_valid_ && left_.size() >= size;
    if (!is_valid_) return;
    std::ranges::copy(left_.first(size), bytes.begin());
    left_ = left_.subspan(size);
  }
  void read(std::optional<Signature>& signature) {
    std::uint8_t is_there = 0;
    read(is_there);
    is_valid_ = is_valid_ && is_there <= 1;
    if (is_there == 1) read(signature.emplace());
  }
  template <class T>
  void read(std::vector<T>& list) {  // Each element has bytes, so that the message bounds them.
    std::uint32_t count = 0;
    read(count);
    for (std::uint32_t i = 0; i < count && is_valid_; ++i) read(list.emplace_back());
  }
  template <class Fields>
  requires std::is_class_v<Fields>
  void read(Fields& message) {
    std::apply([&](auto&... field) { (read(field), ...); }, Fields::fields_of(message));
  }

 private:
  ConstBytes left_;
  bool is_valid_ = true;
};

tl::unexpected<Error> is_no(int kind, std::size_t bytes) {
  return failure(ErrorKind::corrupted,
                 fmt::format("{} bytes are not a message of secure aggregation of kind {}: update "
                             "the client or the server, whichever is older",
                             bytes, kind));
}

void append(std::vector<std::byte>& to, std::string_view text) {
  to.insert(to.end(), bytes_of(text), bytes_of(text) + text.size());
}

}  // namespace

std::vector<SegmentShape> shapes_of(std::span<const ModularVector> segments) {
  std::vector<SegmentShape> shapes;
  for (const ModularVector& segment : segments)
    shapes.push_back({.size = segment.size(), .bits = segment.bits()});
  return shapes;
}

template <class Message>
std::vector<std::byte> encode(const Message& message) {
  std::vector<std::byte> bytes;
  FieldWriter writer(bytes);
  writer.write(Message::kKind);
  writer.write(message);
  return bytes;
}

template <class Message>
Result<Message> decode(ConstBytes bytes) {
  FieldReader reader(bytes);
  std::uint8_t kind = 0;
  Message message;
  reader.read(kind);
  if (kind == Message::kKind) reader.read(message);
  if (kind != Message::kKind || !reader.is_valid() || !reader.left().empty())
    return is_no(Message::kKind, bytes.size());
  return message;
}

#define GRADWIRE_SECURE_MESSAGE(Message)                           \
  template std::vector<std::byte> encode<Message>(const Message&); \
  template Result<Message> decode<Message>(ConstBytes)
GRADWIRE_SECURE_MESSAGE(KeyAdvert);
GRADWIRE_SECURE_MESSAGE(Roster);
GRADWIRE_SECURE_MESSAGE(SealedShares);
GRADWIRE_SECURE_MESSAGE(ForwardedShares);
GRADWIRE_SECURE_MESSAGE(AliveList);
GRADWIRE_SECURE_MESSAGE(AliveSignature);
GRADWIRE_SECURE_MESSAGE(UnmaskRequest);
GRADWIRE_SECURE_MESSAGE(UnmaskingShares);
#undef GRADWIRE_SECURE_MESSAGE

std::vector<std::byte> encode(const MaskedInput& input) {
  std::vector<std::byte> bytes;
  FieldWriter writer(bytes);
  writer.write(MaskedInput::kKind);
  writer.write(input.round);
  for (const ModularVector& segment : input.segments) segment.append_packed(bytes);
  return bytes;
}

Result<MaskedInput> decode_masked(ConstBytes bytes, std::span<const SegmentShape> shapes) {
  FieldReader reader(bytes);
  std::uint8_t kind = 0;
  MaskedInput input;
  reader.read(kind);
  reader.read(input.round);
  if (kind != MaskedInput::kKind || !reader.is_valid())
    return is_no(MaskedInput::kKind, bytes.size());
  ConstBytes left = reader.left();
  for (const SegmentShape& shape : shapes) {
    const std::size_t size =
        std::min(left.size(), ModularVector::packed_bytes(shape.size, shape.bits));
    GRADWIRE_ASSIGN_OR_RETURN(input.segments.emplace_back(),
                              ModularVector::unpack(left.first(size), shape.size, shape.bits));
    left = left.subspan(size);
  }
  if (!left.empty()) return is_no(MaskedInput::kKind, bytes.size());
  return input;
}

KeyDigest digest_of_keys(ClientId client, const PublicKey& channel, const PublicKey& masking) {
  std::vector<std::byte> bytes;
  append(bytes, "gradwire keys");
  FieldWriter writer(bytes);
  writer.write(client);
  writer.write(channel);
  writer.write(masking);
  KeyDigest digest;
  std::ranges::copy_n(sha256(bytes).begin(), digest.size(), digest.begin());
  return digest;
}

Digest graph_seed(std::int64_t round, std::span<const Roster::Member> members) {
  std::vector<std::byte> bytes;
  append(bytes, "gradwire graph");
  FieldWriter writer(bytes);
  writer.write(round);
  for (const Roster::Member& member : members) writer.write(member);
  return sha256(bytes);
}

Digest digest_of_task(std::int64_t version, std::string_view plan) {
  std::vector<std::byte> bytes;
  append(bytes, "gradwire task");
  FieldWriter(bytes).write(version);
  append(bytes, plan);
  return sha256(bytes);
}

Digest digest_of_round(std::int64_t round, const SecurePolicy& policy,
                       std::span<const SegmentShape> shapes, const Digest& task) {
  std::vector<std::byte> bytes;
  append(bytes, "gradwire round");
  FieldWriter writer(bytes);
  writer.write(round);
  writer.write(policy.neighbours);
  writer.write(policy.threshold);
  writer.write(static_cast<std::uint8_t>(policy.active));
  writer.write(task);
  for (const SegmentShape& shape : shapes) {
    writer.write(static_cast<std::uint64_t>(shape.size));
    writer.write(shape.bits);
  }
  return sha256(bytes);
}

std::vector<std::byte> signed_keys(const Digest& round, ClientId client, const KeyDigest& keys) {
  std::vector<std::byte> bytes;
  append(bytes, "gradwire signed keys");
  FieldWriter writer(bytes);
  writer.write(round);
  writer.write(client);
  writer.write(keys);
  return bytes;
}

std::vector<std::byte> signed_list(std::int64_t round, std::span<const ClientId> alive) {
  std::vector<std::byte> bytes;
  append(bytes, "gradwire signed list");
  FieldWriter writer(bytes);
  writer.write(round);
  for (const ClientId client : alive) writer.write(client);
  return bytes;
}

}  // namespace gradwire::federated
