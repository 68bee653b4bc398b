#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "gradwire/base/error.h"
#include "gradwire/codec/codec.h"

namespace gradwire::codec {

/// How an exchange handles a name of the catalogue.
enum class CodecKind : std::uint8_t {
  none,       ///< Gradients are not compressed.
  codec,      ///< A Codec: make_codec().
  low_rank,   ///< Low-rank factors of matrices, computed by power_sgd_exchange(); not a Codec.
  automatic,  ///< The faster of none and a codec, as measured by auto_exchange().
};

/// The numeric parameter after a codec's name and a colon. `name` is empty for codecs without one.
struct CodecParameter {
  std::string_view name;  ///< "FRACTION"
  double standard = 0;    ///< The default.
  double low = 0, high = 0;
  std::string_view allowed;  ///< Text of the allowed values: "1, 2, 3 or 4".
  bool (*fits)(double value) = nullptr;
};

/// One entry of the codec catalogue.
struct CodecEntry {
  std::string_view name;
  CodecKind kind = CodecKind::codec;
  std::string_view summary;  ///< One-line description for help output.
  CodecParameter parameter;
  std::unique_ptr<Codec> (*make)(double parameter) = nullptr;  ///< Null unless kind is codec.
};

/// All codecs, in ascending order of compression. A new codec adds one line to this table.
std::span<const CodecEntry> codec_catalogue();

/// The catalogue as text, one line per codec, for help and error messages.
std::string describe_codecs();

/// A parsed codec specification, such as "int8" or "top_k:0.01".
struct CodecSpec {
  const CodecEntry* entry = nullptr;  ///< Entry of the catalogue; not null.
  double parameter = 0;

  CodecKind kind() const { return entry->kind; }
  /// The text of the command line: "int8", "top_k:0.01".
  std::string text() const;
};

/// Parses NAME or NAME:PARAMETER. Fails with invalid_argument if the name is unknown (the message
/// lists the known ones with their descriptions, and the nearest), or if the parameter is not a
/// number, out of range (the message gives the range) or not allowed. Accepts "auto" but not
/// "auto:CODEC", which callers that support it parse.
Result<CodecSpec> parse_codec(std::string_view text);

/// Checks a codec name: what parse_codec() accepts, or "auto:CODEC". Fails as parse_codec(), and
/// with invalid_argument for "auto:auto".
Status check_codec(std::string_view text);

/// Creates the codec. Fails with invalid_argument if the spec's kind is not `codec`.
Result<std::unique_ptr<Codec>> make_codec(const CodecSpec& spec);

/// Combines parse_codec() and make_codec(), and fails as they do.
Result<std::unique_ptr<Codec>> make_codec(std::string_view text);

}  // namespace gradwire::codec
