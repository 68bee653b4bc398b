#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gradwire/base/types.h"
#include "gradwire/servers/messages.h"

namespace gradwire::servers {

/// One event of a server's order, as it is logged and sent. 48 bytes.
struct OrderRecord {
  enum class Kind : std::uint8_t {
    deal,     ///< Server 0 dealt the worker `count` samples, from `base` on, of epoch `clock`.
    dropped,  ///< The worker's gradient was dropped.
    added,    ///< It is part of a step of the unit, of which others follow (Outcome::added).
    stepped,  ///< It is the last or only one of a step, whose learning rate is `factor` times.
    lost,     ///< The worker was lost. The last values of the unit that it got have version `base`.
    values,   ///< At the end: the unit has version `base`, and its values have this checksum.
  };
  Kind kind = Kind::stepped;
  Rank worker = 0;
  std::uint32_t unit = 0;
  std::uint32_t count = 0;     ///< Gradients: of as many dealt batches, the worker's oldest ones.
  std::uint32_t random = 0;    ///< Gradients: CRC-32C of the random state that they began with.
  std::uint32_t checksum = 0;  ///< CRC-32C of this server's part of the gradient, or values.
  std::int64_t clock = 0;      ///< Gradients: of the worker.
  std::int64_t base = 0;       ///< Gradients: version with which they were computed.
  double factor = 1;

  bool is_gradient() const {
    return kind == Kind::dropped || kind == Kind::added || kind == Kind::stepped;
  }
  friend bool operator==(const OrderRecord&, const OrderRecord&) = default;
};

/// The order in which servers did what, so that one process can repeat their run bit for bit.
struct OrderLog {
  std::string configuration;  ///< The run's, as JSON.
  Placement placement;
  int threads = 1;                                ///< Torch threads on each worker.
  std::vector<std::vector<OrderRecord>> servers;  ///< By server, in the order of events.
};

/// A message's integers: the number of all records, and some of them, from number `first` on.
/// Throws Exception(corrupted) if there is no such record.
std::vector<std::int64_t> page_of(std::span<const OrderRecord> records, std::int64_t first);
/// Appends the records of a page, without its number. Throws Exception(corrupted) for other words.
void append_records(std::vector<OrderRecord>& records, std::span<const std::int64_t> words);

/// The log as a file: "gradwire order", the version of the format and the size of the header as
/// 32-bit integers, the header (JSON: what the records do not have), for each server the number of
/// its records as a 64-bit integer and the records, six 64-bit words each, and the CRC-32C of all
/// that. Integers are little-endian.
std::string encode_order(const OrderLog& log);
/// Throws Exception(invalid_argument), which begins with `name`, for anything but what
/// encode_order() returns.
OrderLog decode_order(std::string_view file, const std::string& name);

}  // namespace gradwire::servers
