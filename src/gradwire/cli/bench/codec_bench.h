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

/// Of a spec of kind none (copying and adding, as a limit) or codec, on `count` values; each of the
/// four rates is measured for `seconds`, at least. Throws Exception for other kinds.
CodecRow measure_codec(const CodecSpec& spec, std::size_t count, double seconds,
                       const Clock& clock);

std::string codec_table_head(std::size_t bytes);
std::string codec_table_line(const CodecRow& row);
std::string to_json(std::span<const CodecRow> rows);

}  // namespace gradwire
