#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "gradwire/base/clock.h"
#include "gradwire/codec/catalogue.h"

namespace gradwire {

/// What a codec does to Gaussian values, and how fast one core does it. Rates are medians, in 10^9
/// bytes of float32 per second, what was not encoded.
struct CodecRow {
  std::string codec;  ///< As on the command line, with its parameter.
  std::size_t bytes = 0, encoded_bytes = 0;
  double encode_gbps = 0;        ///< With error feedback, whether the codec wants it or not.
  double encode_plain_gbps = 0;  ///< Without.
  double decode_gbps = 0, decode_add_gbps = 0;
  double relative_error = 0;  ///< |decoded - values| / |values|, lengths as vectors.

  double ratio() const { return static_cast<double>(bytes) / static_cast<double>(encoded_bytes); }
};

/// On `count` values; each of the rates is measured for `seconds`, at least. Of kind none: copying
/// and adding, as a limit. Of kind low_rank: what one rank computes for matrices of 1024 columns
/// and as many rows, the last one fewer; without feedback there is none, nor any adding, so that
/// the two rates of coding stand for these. Throws Exception for kind automatic.
CodecRow measure_codec(const CodecSpec& spec, std::size_t count, double seconds,
                       const Clock& clock);

std::string codec_table_head(std::size_t bytes);
std::string codec_table_line(const CodecRow& row);
std::string to_json(std::span<const CodecRow> rows);

}  // namespace gradwire
