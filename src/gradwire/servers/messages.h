#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "gradwire/base/lent_span.h"
#include "gradwire/base/types.h"

/// The messages between workers and servers. A worker sends requests to a server in one sequence
/// (kRequestTag), a server answers them with replies. Gradients and values follow the request or
/// reply that announces them; those of each unit are a sequence of their own. Servers send each
/// other their parts of sums (kSumTag), copies of values and optimizer states (kMirrorTag), and
/// acknowledgements of these copies (kMirroredTag).
namespace gradwire::servers {

/// The ranks of a communicator that work and that serve: workers come first. Consecutive workers
/// are a group: it computes one gradient, of which each of its members pushes a slice. To servers a
/// group is one worker, and each slice a unit: slice s of unit u has the number u * members + s.
struct Placement {
  int workers = 1;
  int servers = 1;
  bool beside_workers = false;  ///< Server i is on worker i. Otherwise on a rank of its own.
  int members = 1;              ///< Workers of a group.

  Rank rank_of_server(int server) const { return beside_workers ? server : workers + server; }
  int ranks() const { return beside_workers ? workers : workers + servers; }

  int groups() const { return workers / members; }
  int group_of(Rank worker) const { return worker / members; }
  int member_of(Rank worker) const { return worker % members; }
  /// The server that mirrors this one, and the server that it mirrors.
  int mirror_of(int server) const { return (server + 1) % servers; }
  int mirrored_by(int server) const { return (server + servers - 1) % servers; }
  /// The worker that pushes this slice for the group.
  Rank worker_of(int group, std::size_t slice) const {
    return group * members + static_cast<Rank>(slice % static_cast<std::size_t>(members));
  }
  /// A server has one part of each slice.
  int parts_of_unit() const { return members * servers; }
};

/// A worker's message to one server.
struct Request {
  enum class Kind : std::int64_t {
    hello,  ///< The first one. `value` is the fingerprint of the model's layout.
    load,   ///< The server's part of the unit's values follows (push_tag); they replace its own.
    push,   ///< Its part of a gradient of `clock` follows (push_tag), computed with version `base`.
            ///< If `value` is not 0, it is also a pull for `clock` + 1.
    pull,   ///< Asks for its parts of the values of all units, as they are at one moment.
    deal,   ///< Tells server 0 to deal `value` samples in each of `clock` epochs, of which it has
            ///< dealt `base`. So many batches of these as `batches` says were not applied, and
            ///< follow (kStateTag). Once.
    take,   ///< Asks server 0 for a batch of at most `value` samples (kDealTag). If `base` is not
            ///< 0, the worker has got the signal of that number.
    meet,   ///< Asks to be told when all other living workers ask that, too. `value` and `base` are
            ///< the mean and the deviation of the worker's Pace, in nanoseconds.
    read,   ///< Asks for its part of the unit's values, as they are.
    join,  ///< The worker comes from the lost server that this one mirrors. `value` integers follow
           ///< (kStateTag): by unit, the version of the values that it has from that server, and
           ///< the number of pushes that it has not answered.
    progress,      ///< Asks server 0 for a DealProgress.
    fetch_states,  ///< Asks for the `value` states of its optimizers (kStateTag).
    load_states,   ///< `value` states follow (kStateTag), and replace its own.
    begin_at,      ///< Says that the unit has had `base` updates in earlier runs.
    report,        ///< Asks for a ServerReport.
    order,  ///< Asks for OrderRecords (order_log.h) from number `base` on: as many as fit into
            ///< a message. If `value` is not 0, for those of the present values.
    leave,  ///< The last one.
  };
  Kind kind = Kind::hello;
  std::int64_t unit = 0;  ///< Its number on the servers.
  std::int64_t clock = 0;
  std::int64_t base = 0;
  std::int64_t value = 0;
  std::int64_t batches = 0;  ///< push: number of dealt batches whose gradient it is.
  double rate = 1;           ///< push: factor on the learning rate.
  double samples = 1;        ///< push: number of samples of the gradient, or another weight.
  std::int64_t random = 0;   ///< push: checksum of the worker's random state before it; 0: none.
};

/// A server's answer. To a pull (pull_tag): `value` is the version of the values that follow. To a
/// report, to meet, to progress and to order (kReplyTag): the number of integers that follow, which
/// encode a ServerReport, a Meeting, a DealProgress, or the number of all records and some of them.
/// To others (kReplyTag): 0.
struct Reply {
  std::int64_t value = 0;
};

constexpr int kRequestTag = 0, kReplyTag = 1, kDealTag = 2, kStateTag = 3, kSumTag = 4,
              kMirrorTag = 5, kMirroredTag = 6;
constexpr int push_tag(std::size_t unit) {
  return static_cast<int>(7 + 2 * unit);
}
constexpr int pull_tag(std::size_t unit) {
  return static_cast<int>(8 + 2 * unit);
}
/// Added to all of these between workers and a server in place of a lost one.
constexpr int kMirrorTags = 1 << 28;

/// Lends a request or a reply, which must outlive the operation.
template <class Message>
LentSpan lend_message(Message& message) {
  static_assert(std::is_trivially_copyable_v<Message> && sizeof(Message) % 8 == 0);
  return {&message, sizeof(Message) / 8, DataType::int64, nullptr};
}

/// Lends all of a vector's messages.
template <class Message>
LentSpan lend_all(std::vector<Message>& messages) {
  static_assert(std::is_trivially_copyable_v<Message> && sizeof(Message) % 8 == 0);
  return {messages.data(), messages.size() * sizeof(Message) / 8, DataType::int64, nullptr};
}

/// Returns one of equal parts: the slice of a unit, or a server's part of a slice.
inline LentSpan part_of(const LentSpan& whole, int part, int parts) {
  const std::size_t count = whole.count / static_cast<std::size_t>(parts);
  auto* const begin = static_cast<std::byte*>(whole.data);
  const std::size_t offset = static_cast<std::size_t>(part) * count * size_of(whole.type);
  return {begin + offset, count, whole.type, whole.keep_alive};
}

}  // namespace gradwire::servers
