#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "gradwire/servers/messages.h"
#include "gradwire/servers/row_store.h"
#include "gradwire/servers/staleness.h"

/// The messages between workers and servers of rows. A worker sends requests in one sequence
/// (kRowRequestTag), and ids and floats that belong to them in others. The tags are apart from
/// those of messages.h.
namespace gradwire::servers {

/// The settings that workers and servers of rows have in common.
struct RowLayout {
  Placement placement;
  RowOptions rows;
  std::int64_t staleness = 0;

  int server_of(std::int64_t id) const { return static_cast<int>(id % placement.servers); }
  /// Number of ids of one server.
  std::int64_t rows_of(int server) const {
    return (rows.rows - server + placement.servers - 1) / placement.servers;
  }
};
/// A number that differs between layouts.
std::uint64_t fingerprint_of(const RowLayout& layout);

/// A worker's message to one server. `count` ids, in ascending order, follow (kRowIdsTag) unless
/// it is 0.
struct RowRequest {
  enum class Kind : std::int64_t {
    hello,    ///< The first one. `clock` is the fingerprint of the layout.
    look_up,  ///< Asks for the rows of batch `clock` (kRowLookUpTag): a RowReply, then the rows.
    update,   ///< Gradients of these rows follow (kRowFloatsTag).
    read,     ///< Asks for rows without a permit (kRowReadTag).
    put,      ///< Values, and with Adagrad states, of these rows follow (kRowFloatsTag).
    fetch,    ///< Asks for at most `count` made rows, from the `clock`-th on (kRowReplyTag): a
              ///< RowReply with their number, ids, values and states. No ids follow.
    report,   ///< Asks for a RowReport (kRowReplyTag). No ids follow.
    leave,    ///< The last one.
  };
  Kind kind = Kind::hello;
  std::int64_t clock = 0;
  std::int64_t count = 0;
  double rate = 1;  ///< update: factor on the learning rate. The same in all workers' of a step.
};

/// To a look-up: `value` is the number of steps that its rows have. To a report and a fetch: the
/// number of integers, or of rows, that follow. To hello and put: 0.
struct RowReply {
  std::int64_t value = 0;
};

constexpr int kRowTags = 1 << 29;
constexpr int kRowRequestTag = kRowTags, kRowIdsTag = kRowTags + 1, kRowFloatsTag = kRowTags + 2,
              kRowLookUpTag = kRowTags + 3, kRowReadTag = kRowTags + 4, kRowReplyTag = kRowTags + 5;

/// The work of servers of rows so far.
struct RowReport {
  std::int64_t made = 0;         ///< Rows.
  std::int64_t bytes = 0;        ///< Memory of the stores.
  std::int64_t steps = 0;        ///< Each server takes them.
  std::int64_t max_permits = 0;  ///< The largest number that one worker had.
  Staleness staleness;           ///< The updates'.
};
void add(RowReport& sum, const RowReport& other);
std::vector<std::int64_t> encode(const RowReport& report);
/// Throws Exception(corrupted).
RowReport decode_row_report(std::span<const std::int64_t> integers);

/// The distinct ids of a batch, by server and then in ascending order, so that a server's are
/// contiguous.
struct DistinctIds {
  std::vector<std::int64_t> ids;
  std::vector<std::size_t> begins;      ///< By server, and the end: where its ids begin.
  std::vector<std::int64_t> positions;  ///< By element of the batch: its id's place in `ids`.

  std::size_t count_of(int server) const {
    const auto i = static_cast<std::size_t>(server);
    return begins[i + 1] - begins[i];
  }
};
/// Throws Exception(invalid_argument) for an id that the table does not have.
DistinctIds distinct(std::span<const std::int64_t> batch, const RowLayout& layout);

inline LentSpan lend_floats(std::span<float> floats, std::shared_ptr<const void> owner = nullptr) {
  return {floats.data(), floats.size(), DataType::float32, std::move(owner)};
}
inline LentSpan lend_ids(std::span<std::int64_t> ids, std::shared_ptr<const void> owner = nullptr) {
  return {ids.data(), ids.size(), DataType::int64, std::move(owner)};
}

}  // namespace gradwire::servers
