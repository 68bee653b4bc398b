#include "gradwire/servers/order_log.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "gradwire/base/bytes.h"
#include "gradwire/base/crc32c.h"
#include "gradwire/base/json_document.h"
#include "gradwire/base/json_fields.h"
#include "gradwire/base/refuse.h"

namespace gradwire::servers {
namespace {

constexpr std::string_view kOrderMagic = "gradwire order\n\n";
constexpr std::uint32_t kOrderVersion = 1;
constexpr std::size_t kRecordWords = 6;
constexpr std::size_t kRecordBytes = 8 * kRecordWords;

using Words = std::array<std::uint64_t, kRecordWords>;

std::uint64_t two(std::uint32_t low, std::uint32_t high) {
  return low | static_cast<std::uint64_t>(high) << 32;
}

Words words_of(const OrderRecord& record) {
  return {two(static_cast<std::uint32_t>(record.worker), record.unit),
          two(static_cast<std::uint32_t>(record.kind), record.count),
          two(record.random, record.checksum),
          static_cast<std::uint64_t>(record.clock),
          static_cast<std::uint64_t>(record.base),
          std::bit_cast<std::uint64_t>(record.factor)};
}

/// Throws Exception(corrupted) for a kind that there is not, and a factor that is no number.
OrderRecord record_of(const Words& words) {
  const auto low = [](std::uint64_t word) { return static_cast<std::uint32_t>(word); };
  const auto high = [](std::uint64_t word) { return static_cast<std::uint32_t>(word >> 32); };
  const std::uint32_t kind = low(words[1]);
  if (kind > static_cast<std::uint32_t>(OrderRecord::Kind::values)) {
    throw Exception(ErrorKind::corrupted, fmt::format("there is no record of kind {}", kind));
  }
  const auto factor = std::bit_cast<double>(words[5]);
  if (!std::isfinite(factor)) {
    throw Exception(ErrorKind::corrupted, "a record's factor on the learning rate is no number");
  }
  return {.kind = static_cast<OrderRecord::Kind>(kind),
          .worker = static_cast<Rank>(low(words[0])),
          .unit = high(words[0]),
          .count = high(words[1]),
          .random = low(words[2]),
          .checksum = high(words[2]),
          .clock = static_cast<std::int64_t>(words[3]),
          .base = static_cast<std::int64_t>(words[4]),
          .factor = factor};
}

template <class Integer>
void append(std::string& file, Integer value) {
  std::array<std::byte, sizeof(Integer)> bytes{};
  store_little_endian(bytes.data(), value);
  file.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

/// Reads a file from its front.
class OrderReader {
 public:
  explicit OrderReader(std::string_view file) : left_(file) {}

  std::string_view take(std::size_t bytes) {
    if (bytes > left_.size()) refuse("it ends too early");
    const std::string_view taken = left_.substr(0, bytes);
    left_.remove_prefix(bytes);
    return taken;
  }

  template <class Integer>
  Integer next() {
    return load_little_endian<Integer>(bytes_of(take(sizeof(Integer))));
  }

  std::vector<OrderRecord> records() {
    const auto count = next<std::uint64_t>();
    if (count > left_.size() / kRecordBytes) refuse("it ends too early");
    std::vector<OrderRecord> records;
    records.reserve(count);
    for (std::uint64_t i = 0; i < count; ++i) {
      Words words{};
      for (std::uint64_t& word : words) word = next<std::uint64_t>();
      records.push_back(record_of(words));
    }
    return records;
  }

  std::size_t left() const { return left_.size(); }

 private:
  std::string_view left_;
};

std::string header_of(const OrderLog& log) {
  return nlohmann::json{{"configuration", log.configuration},
                        {"workers", log.placement.workers},
                        {"servers", log.placement.servers},
                        {"beside_workers", log.placement.beside_workers},
                        {"threads", log.threads}}
      .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

OrderLog read_header(std::string_view header) {
  constexpr int kMost = 1 << 16;
  const auto json = value_or_throw(parse_json_document(header, "the header"));
  JsonFields fields(json, "", "the header");
  OrderLog log;
  log.configuration = fields.text_or("configuration", "");
  log.placement = {.workers = fields.integer("workers", 1, kMost),
                   .servers = fields.integer("servers", 1, kMost),
                   .beside_workers = fields.flag_or("beside_workers", false)};
  log.threads = fields.integer("threads", 1, kMost);
  fields.refuse_others();
  return log;
}

OrderLog read_order(std::string_view file) {
  constexpr std::size_t kChecksum = 4;
  const bool has_magic = file.starts_with(kOrderMagic);
  if (!has_magic || file.size() < kOrderMagic.size() + 4 + kChecksum) {
    refuse("it is not the order of a run with parameter servers, which servers.log names");
  }
  OrderReader reader(file.substr(0, file.size() - kChecksum));
  reader.take(kOrderMagic.size());
  if (const auto version = reader.next<std::uint32_t>(); version != kOrderVersion) {
    refuse(
        "it has version {} of its format, and this gradwire reads version {}: use the gradwire "
        "that wrote it",
        version, kOrderVersion);
  }
  const std::size_t end = file.size() - kChecksum;
  const ConstBytes bytes = std::as_bytes(std::span(file));
  if (crc32c(bytes.first(end)) != load_little_endian<std::uint32_t>(bytes.data() + end)) {
    refuse("it is damaged or incomplete: its checksum does not fit");
  }
  OrderLog log = read_header(reader.take(reader.next<std::uint32_t>()));
  for (int server = 0; server < log.placement.servers; ++server) {
    log.servers.push_back(reader.records());
  }
  if (reader.left() > 0) refuse("it has {} bytes too many", reader.left());
  return log;
}

}  // namespace

std::vector<std::int64_t> page_of(std::span<const OrderRecord> records, std::int64_t first) {
  constexpr std::size_t kPage = 20'000;  // Below a megabyte.
  if (first < 0 || first > static_cast<std::int64_t>(records.size())) {
    throw Exception(ErrorKind::corrupted,
                    fmt::format("there is no record {} of {}", first, records.size()));
  }
  std::vector<std::int64_t> page{static_cast<std::int64_t>(records.size())};
  const auto begin = static_cast<std::size_t>(first);
  for (const OrderRecord& record :
       records.subspan(begin, std::min(kPage, records.size() - begin))) {
    for (const std::uint64_t word : words_of(record)) {
      page.push_back(static_cast<std::int64_t>(word));
    }
  }
  return page;
}

void append_records(std::vector<OrderRecord>& records, std::span<const std::int64_t> words) {
  if (words.size() % kRecordWords != 0) {
    throw Exception(ErrorKind::corrupted, "the records of a server are damaged");
  }
  for (std::size_t i = 0; i < words.size(); i += kRecordWords) {
    Words record{};
    std::ranges::transform(words.subspan(i, kRecordWords), record.begin(),
                           [](std::int64_t word) { return static_cast<std::uint64_t>(word); });
    records.push_back(record_of(record));
  }
}

std::string encode_order(const OrderLog& log) {
  const std::string header = header_of(log);
  std::string file(kOrderMagic);
  append(file, kOrderVersion);
  append(file, static_cast<std::uint32_t>(header.size()));
  file += header;
  for (const auto& records : log.servers) {
    append(file, static_cast<std::uint64_t>(records.size()));
    for (const OrderRecord& record : records) {
      for (const std::uint64_t word : words_of(record)) append(file, word);
    }
  }
  append(file, crc32c(std::as_bytes(std::span(file))));
  return file;
}

OrderLog decode_order(std::string_view file, const std::string& name) {
  try {
    return read_order(file);
  } catch (const Exception& e) {
    refuse("{}: {}", name, e.what());
  }
}

}  // namespace gradwire::servers
