#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "gradwire/base/clock.h"
#include "gradwire/codec/catalogue.h"

namespace gradwire::cli {

/// Compression, error and speed of a codec on Gaussian values, on one core. Rates are medians in
/// 10^9 bytes of uncompressed float32 per second.
struct CodecRow {
  std::string codec;  ///< Codec as on the command line, with its parameter.
  std::size_t bytes = 0, encoded_bytes = 0;
  double encode_gbps = 0;        ///< With error feedback, even if the codec does not need it.
  double encode_plain_gbps = 0;  ///< Without error feedback.
  double decode_gbps = 0, decode_add_gbps = 0;
  double relative_error = 0;  ///< |decoded - values| / |values|, Euclidean norms.

  double ratio() const { return static_cast<double>(bytes) / static_cast<double>(encoded_bytes); }
};

/// Measures a codec on `count` values; each rate is measured for at least `seconds`. Kind none:
/// copying and adding, as an upper bound. Kind low_rank: the computation of one rank for matrices
/// of 1024 columns and rows (the last one has fewer rows). It has no variant without feedback and
/// no decode-add, so that encode_plain_gbps and decode_add_gbps repeat the other two rates. Throws
/// Exception for kind automatic.
CodecRow measure_codec(const codec::CodecSpec& spec, std::size_t count, double seconds,
                       const Clock& clock);

std::string codec_table_head(std::size_t bytes);
std::string codec_table_line(const CodecRow& row);
std::string to_json(std::span<const CodecRow> rows);

}  // namespace gradwire::cli
