#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "gradwire/base/error.h"
#include "gradwire/codec/codec.h"

namespace gradwire {

/// What has to be done with a name of the catalogue.
enum class CodecKind : std::uint8_t {
  none,       ///< Gradients travel as they are.
  codec,      ///< A Codec: make_codec().
  low_rank,   ///< Factors of matrices, which an Averager computes (gradient/); not a Codec.
  automatic,  ///< Whichever of none and a codec makes steps shorter, which an Averager measures.
};

/// The number that may follow a codec's name and a colon; codecs without one have an empty `name`.
struct CodecParameter {
  std::string_view name;  ///< "FRACTION"
  double standard = 0;    ///< If it is left out.
  double low = 0, high = 0;
  std::string_view allowed;  ///< In words: "1, 2, 3 or 4".
  bool (*fits)(double value) = nullptr;
};

/// A codec under its name.
struct CodecEntry {
  std::string_view name;
  CodecKind kind = CodecKind::codec;
  std::string_view summary;  ///< One line for people.
  CodecParameter parameter;
  std::unique_ptr<Codec> (*make)(double parameter) = nullptr;  ///< Null but for kind codec.
};

/// All of them, the mildest first. A new codec is a line here.
std::span<const CodecEntry> codec_catalogue();

/// The catalogue as text, a line on each, for help and error messages.
std::string describe_codecs();

/// What a text such as "int8" or "top_k:0.01" says.
struct CodecSpec {
  const CodecEntry* entry = nullptr;  ///< Of the catalogue; not null.
  double parameter = 0;

  CodecKind kind() const { return entry->kind; }
  /// As it would be written: "int8", "top_k:0.01".
  std::string text() const;
};

/// Reads NAME or NAME:PARAMETER. Errors: invalid_argument: an unknown name (lists the known ones
/// with a line on each, and the nearest), a parameter that is no number, out of range (says the
/// range) or not wanted. "auto" is accepted here, "auto:CODEC" is for who knows it.
Result<CodecSpec> parse_codec(std::string_view text);

/// Whether it names what gradients can travel as: what parse_codec() takes, and "auto:CODEC" for
/// one of them. Errors: parse_codec()'s; invalid_argument for "auto:auto".
Status check_codec(std::string_view text);

/// The codec. Errors: invalid_argument, if the spec's kind is not `codec`.
Result<std::unique_ptr<Codec>> make_codec(const CodecSpec& spec);

/// Both of them. Errors: theirs.
Result<std::unique_ptr<Codec>> make_codec(std::string_view text);

}  // namespace gradwire
