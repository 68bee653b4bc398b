#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <variant>
#include <vector>

#include "gradwire/base/bytes.h"
#include "gradwire/base/error.h"
#include "gradwire/federated/round.h"

namespace gradwire::federated {

// A client asks, the server answers, once for each question; the client may ask the same again, and
// gets the same answer. A message is a header and the fields of its kind in order: integers and
// doubles of 8 bytes little-endian, texts after their size, and bytes at the end. A further kind is
// a struct with its fields, and its row in Question or Answer.

inline constexpr std::uint16_t kMessageVersion = 2;
/// Longest text in a message.
inline constexpr std::size_t kMaxTextBytes = std::size_t{1} << 20;
/// Longest question but an upload, and longest answer without its model.
inline constexpr std::size_t kMaxQuestionBytes = std::size_t{1} << 18;
inline constexpr std::size_t kMaxAnswerBytes = 2 * kMaxTextBytes;

/// Bytes that several messages share.
struct Blob {
  std::shared_ptr<const std::byte> data;
  std::size_t size = 0;

  static Blob of(std::vector<std::byte> bytes);
  ConstBytes bytes() const { return {data.get(), size}; }
};

// --- questions ---

/// The client could take part in a round.
struct CheckIn {
  std::int64_t samples = 0;
  std::int64_t version = -1;  ///< The version of the model that it has; -1: none.
  static constexpr auto fields = [](auto& m) { return std::tie(m.samples, m.version); };
};
/// It takes the offer, and needs the model.
struct Fetch {
  static constexpr auto fields = [](auto&) { return std::tie(); };
};
/// It has trained.
struct Ready {
  double compute_seconds = 0;
  static constexpr auto fields = [](auto& m) { return std::tie(m.compute_seconds); };
};
/// A contribution: the sizes and bits of its segments, and their elements, packed.
struct Update {
  std::vector<std::int64_t> shape;  ///< Size and bits of each segment.
  Blob packed;
  static constexpr auto fields = [](auto& m) { return std::tie(m.shape, m.packed); };
};
/// Why a client leaves a round. The server learns nothing more, because error texts may contain
/// samples, commands and paths of the client.
enum class LeaveReason : std::uint8_t {
  not_eligible,
  stopped,
  out_of_time,
  beyond_limits,
  known_round,
  unusable_task,
  training_failed,
  not_finite,
  refuses_order,
};
/// Such as "it is not eligible any more".
std::string_view text_of(LeaveReason reason);

/// It takes no part in the round any more.
struct Leave {
  std::int64_t reason = 0;  ///< A LeaveReason.
  static constexpr auto fields = [](auto& m) { return std::tie(m.reason); };

  static Leave of(LeaveReason reason) { return {static_cast<std::int64_t>(reason)}; }
  bool is_possible() const;
};
/// With secure aggregation: an encoded KeyAdvert, SealedShares, AliveSignature or UnmaskingShares.
struct SecureMessage {
  Blob message;
  static constexpr auto fields = [](auto& m) { return std::tie(m.message); };
};
/// An encoded MaskedInput; nothing if the server has it, and the client waits for the order.
struct MaskedUpdate {
  Blob message;
  static constexpr auto fields = [](auto& m) { return std::tie(m.message); };
};
/// It asks what it would train, before it checks in.
struct Describe {
  static constexpr auto fields = [](auto&) { return std::tie(); };
};

// --- answers ---

/// The work of a round, told before the model is sent.
struct Offer {
  std::int64_t version = 0;  ///< The model's.
  double seconds = 0;        ///< Until the update must be ready.
  std::int64_t memory_bytes = 0, steps = 0;
  std::int64_t down_bytes = 0, up_bytes = 0;
  static constexpr auto fields = [](auto& m) {
    return std::tie(m.version, m.seconds, m.memory_bytes, m.steps, m.down_bytes, m.up_bytes);
  };
};
struct Task {
  std::int64_t version = 0;
  std::int64_t base_version = -1;  ///< `model` is the difference to this version; -1: the model.
  double seconds = 0;
  std::string plan;  ///< JSON, of the server's owner.
  Blob model;
  static constexpr auto fields = [](auto& m) {
    return std::tie(m.version, m.base_version, m.seconds, m.plan, m.model);
  };
};
/// Order::Upload.
struct UploadOrder {
  std::int64_t bits = 1;
  std::int64_t weight = 1;
  /// The SecurePolicy; no neighbours: the server sees the update.
  std::int64_t neighbours = 0, threshold = 0, active = 0;
  static constexpr auto fields = [](auto& m) {
    return std::tie(m.bits, m.weight, m.neighbours, m.threshold, m.active);
  };

  static UploadOrder of(const Order::Upload& order);
  std::optional<SecurePolicy> secure() const;
  /// Returns false for numbers that no order has. Unchecked, they could exhaust the client's
  /// memory.
  bool is_possible() const;
};
/// With secure aggregation: an encoded Roster, ForwardedShares, AliveList or UnmaskRequest.
struct SecureOrder {
  std::string certificates;  ///< Those of a roster's neighbours; with SecurePolicy::active.
  Blob message;
  static constexpr auto fields = [](auto& m) { return std::tie(m.certificates, m.message); };
};
/// The update is not needed.
struct NotNeeded {
  double seconds = 0;  ///< When to check in again.
  static constexpr auto fields = [](auto& m) { return std::tie(m.seconds); };
};
/// Nothing yet: ask the same again.
struct Wait {
  static constexpr auto fields = [](auto&) { return std::tie(); };
};
struct ComeBack {
  double seconds = 0;
  std::string reason;
  static constexpr auto fields = [](auto& m) { return std::tie(m.seconds, m.reason); };
};
/// The update counts.
struct Done {
  double seconds = 0;  ///< When to check in again.
  static constexpr auto fields = [](auto& m) { return std::tie(m.seconds); };
};
/// There are no more rounds.
struct Over {
  static constexpr auto fields = [](auto&) { return std::tie(); };
};
struct Refusal {
  std::int64_t kind = 0;  ///< An ErrorKind.
  std::string reason;
  static constexpr auto fields = [](auto& m) { return std::tie(m.kind, m.reason); };

  static Refusal of(const Error& error) {
    return {static_cast<std::int64_t>(error.kind), error.message};
  }
  Error error() const;
};
struct Description {
  std::string text;  ///< JSON, of the server's owner.
  static constexpr auto fields = [](auto& m) { return std::tie(m.text); };
};

using Question =
    std::variant<CheckIn, Fetch, Ready, Update, Leave, SecureMessage, MaskedUpdate, Describe>;
using Answer = std::variant<Offer, Task, UploadOrder, NotNeeded, Wait, ComeBack, Done, Over,
                            Refusal, SecureOrder, Description>;

/// Such as "check-in"; for a message of secure aggregation what it has, such as "keys".
std::string_view name_of(const Question& question);

/// The first bytes of a message, little-endian: version 2, kind 2, zero 4, instance 8, round 8,
/// size 8.
struct MessageHeader {
  static constexpr std::size_t kBytes = 32;
  std::uint16_t kind = 0;      ///< Place in Question; 256 more for one in Answer.
  std::uint64_t instance = 0;  ///< A random number of the client's process.
  std::int64_t round = -1;
  std::uint64_t size = 0;  ///< Bytes that follow.
};
/// Fails with mismatch (another version) or corrupted.
Result<MessageHeader> decode_header(ConstBytes bytes);
/// Returns true for the kind of a question M.
template <class M>
bool is_question(const MessageHeader& header) {
  return header.kind == Question(M{}).index();
}
/// Returns true for a question that is as long as an update.
inline bool is_upload(const MessageHeader& header) {
  return is_question<Update>(header) || is_question<MaskedUpdate>(header);
}

/// A message as it is sent: the header and most fields, then bytes that others share.
struct Message {
  std::vector<std::byte> head;
  Blob tail;
};
Message encode(const Question& question, std::uint64_t instance, std::int64_t round);
Message encode(const Answer& answer, std::int64_t round);

/// `body`: what follows the header; decoded bytes are a part of it. Fails with corrupted unless it
/// is a message of the header's kind, to the last byte.
Result<Question> decode_question(const MessageHeader& header, const Blob& body);
Result<Answer> decode_answer(const MessageHeader& header, const Blob& body);

/// The segments of a contribution.
std::vector<SegmentShape> segments_of(const UpdateShape& shape, int bits);
/// The bytes of an update for such an order, without the header; and of a masked one.
std::size_t update_bytes(const UpdateShape& shape, int bits);
std::size_t masked_bytes(const UpdateShape& shape, int bits);
/// Upper bound of the bytes that a client with `neighbours` neighbours sends beside its masked
/// update.
std::size_t secure_up_bytes(std::size_t neighbours);
/// Upper bound of the length of one of these messages.
std::size_t longest_secure_message(std::size_t neighbours);
Update to_update(const Contribution& contribution);
/// Inverse of to_update(). Allocates only if the update is as ordered; fails with corrupted.
Result<Contribution> contribution_in(const Update& update, const UpdateShape& shape, int bits);

}  // namespace gradwire::federated
