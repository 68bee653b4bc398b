#include "gradwire/cli/bench/codec_bench.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <memory>
#include <numbers>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "gradwire/base/random.h"
#include "gradwire/base/statistics.h"
#include "gradwire/base/units.h"
#include "gradwire/exchange/power_sgd_exchange.h"

namespace gradwire::cli {
namespace {

constexpr std::uint64_t kSeed = 1;

/// Returns standard normal values (Box and Muller, Ann. Math. Statist. 29, 1958).
std::vector<float> gaussian(std::size_t count) {
  Random random(kSeed);
  std::vector<float> values(count);
  for (float& value : values) {
    const double radius = std::sqrt(-2 * std::log(1 - random.unit()));
    value = static_cast<float>(radius * std::cos(2 * std::numbers::pi * random.unit()));
  }
  return values;
}

/// Returns the rate of `run` in 10^9 bytes of float32 per second: the median of its runs, after one
/// that is not measured.
template <class Run>
double rate(std::size_t bytes, double seconds, const Clock& clock, Run run) {
  run();
  std::vector<double> times;
  double all = 0;
  while (all < seconds || times.size() < 3) {
    const Time begin = clock.now();
    run();
    times.push_back(std::chrono::duration<double>(clock.now() - begin).count());
    all += times.back();
  }
  return static_cast<double>(bytes) / median(times) * 1e-9;
}

double relative_error(std::span<const float> values, std::span<const float> decoded) {
  double lost = 0, all = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    lost += std::pow(static_cast<double>(decoded[i]) - values[i], 2);
    all += std::pow(static_cast<double>(values[i]), 2);
  }
  return std::sqrt(lost / all);
}

void add(std::span<const float> values, std::span<float> to) {
  for (std::size_t i = 0; i < values.size(); ++i) to[i] += values[i];
}

/// Cost of moving the values without any codec.
CodecRow measure_none(std::size_t count, double seconds, const Clock& clock) {
  const std::vector<float> values = gaussian(count);
  std::vector<float> copied(count);
  const std::size_t bytes = count * sizeof(float);
  CodecRow row{.codec = "none", .bytes = bytes, .encoded_bytes = bytes};
  row.encode_plain_gbps = row.decode_gbps =
      rate(bytes, seconds, clock, [&] { std::memcpy(copied.data(), values.data(), bytes); });
  row.encode_gbps = row.decode_add_gbps = rate(bytes, seconds, clock, [&] { add(values, copied); });
  return row;
}

/// Describes `count` values as square matrices of kColumns columns; the remainder belongs to no
/// matrix.
exchange::UnitShape matrices_of(std::size_t count) {
  constexpr std::size_t kColumns = 1024;
  exchange::UnitShape shape{.count = count};
  for (std::size_t begin = 0; begin + kColumns <= count; begin += kColumns * kColumns) {
    const std::size_t rows = std::min(kColumns, (count - begin) / kColumns);
    shape.tensors.push_back({.name = "", .offset = begin, .rows = rows, .columns = kColumns});
  }
  return shape;
}

CodecRow measure_low_rank(const codec::CodecSpec& spec, std::size_t count, double seconds,
                          const Clock& clock) {
  const std::vector<float> values = gaussian(count);
  std::vector<float> decoded = values;
  exchange::PowerSgdUnit bucket(matrices_of(count), static_cast<std::size_t>(spec.parameter));
  const std::size_t bytes = count * sizeof(float);
  std::uint64_t seed = kSeed;
  const auto encode = [&] {
    bucket.compute_p(values, ++seed);
    bucket.compute_q();
  };
  encode();
  bucket.decompress(decoded);
  CodecRow row{.codec = spec.text(), .bytes = bytes};
  row.encoded_bytes =
      bucket.has_matrices() ? (bucket.p().count + bucket.q().count) * sizeof(float) : bytes;
  row.relative_error = relative_error(values, decoded);
  row.encode_gbps = row.encode_plain_gbps = rate(bytes, seconds, clock, encode);
  row.decode_gbps = row.decode_add_gbps =
      rate(bytes, seconds, clock, [&] { bucket.decompress(decoded); });
  return row;
}

}  // namespace

CodecRow measure_codec(const codec::CodecSpec& spec, std::size_t count, double seconds,
                       const Clock& clock) {
  if (spec.kind() == codec::CodecKind::none) return measure_none(count, seconds, clock);
  if (spec.kind() == codec::CodecKind::low_rank)
    return measure_low_rank(spec, count, seconds, clock);
  const std::unique_ptr<codec::Codec> codec = value_or_throw(codec::make_codec(spec));
  const std::vector<float> values = gaussian(count);
  std::vector<float> residual(count), decoded(count);
  std::vector<std::byte> encoded(codec->encoded_bytes(count));
  const std::size_t bytes = count * sizeof(float);
  CodecRow row{.codec = spec.text(), .bytes = bytes, .encoded_bytes = encoded.size()};
  std::uint64_t seed = kSeed;
  row.encode_gbps =
      rate(bytes, seconds, clock, [&] { codec->encode(values, residual, ++seed, encoded); });
  row.encode_plain_gbps =
      rate(bytes, seconds, clock, [&] { codec->encode(values, {}, kSeed, encoded); });
  row.decode_gbps =
      rate(bytes, seconds, clock, [&] { value_or_throw(codec->decode(encoded, kSeed, decoded)); });
  row.relative_error = relative_error(values, decoded);
  row.decode_add_gbps = rate(bytes, seconds, clock,
                             [&] { value_or_throw(codec->decode_add(encoded, kSeed, decoded)); });
  return row;
}

std::string codec_table_head(std::size_t bytes) {
  return fmt::format(
      "# {} of Gaussian float32 values, one core; rates in GB/s of float32; encode: with error "
      "feedback, plain: without; none: copying and adding\n"
      "{:<17} {:>8} {:>10} {:>8} {:>8} {:>8} {:>8}\n",
      format_bytes(bytes), "codec", "ratio", "error", "encode", "plain", "decode", "add");
}

std::string codec_table_line(const CodecRow& row) {
  return fmt::format("{:<17} {:>8.2f} {:>10.3g} {:>8.2f} {:>8.2f} {:>8.2f} {:>8.2f}\n", row.codec,
                     row.ratio(), row.relative_error, row.encode_gbps, row.encode_plain_gbps,
                     row.decode_gbps, row.decode_add_gbps);
}

std::string to_json(std::span<const CodecRow> rows) {
  nlohmann::ordered_json json;
  json["rows"] = nlohmann::ordered_json::array();
  for (const CodecRow& row : rows) {
    json["rows"].push_back({{"codec", row.codec},
                            {"bytes", row.bytes},
                            {"encoded_bytes", row.encoded_bytes},
                            {"ratio", row.ratio()},
                            {"relative_error", row.relative_error},
                            {"encode_gbps", row.encode_gbps},
                            {"encode_plain_gbps", row.encode_plain_gbps},
                            {"decode_gbps", row.decode_gbps},
                            {"decode_add_gbps", row.decode_add_gbps}});
  }
  return json.dump(2) + "\n";
}

}  // namespace gradwire::cli
