#include "gradwire/codec/catalogue.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <optional>
#include <vector>

#include <fmt/format.h>

#include "gradwire/base/suggest.h"
#include "gradwire/codec/codecs.h"

namespace gradwire::codec {
namespace {

bool is_whole(double value) {
  return value == std::floor(value);
}

bool is_power_of_two(double value) {
  return value == 2 || value == 4 || value == 8;
}

bool is_positive(double value) {
  return value > 0;
}

constexpr CodecParameter kNoParameter;
constexpr CodecParameter kFraction{"FRACTION", 0.01, 0, 0.5, "more than 0, at most 0.5",
                                   is_positive};
constexpr CodecParameter kMaskFraction{"FRACTION", 0.1, 0, 0.5, "more than 0, at most 0.5",
                                       is_positive};
constexpr CodecParameter kQsgdBits{"BITS", 4, 2, 8, "2, 4 or 8", is_power_of_two};
constexpr CodecParameter kRotationBits{"BITS", 2, 1, 4, "1, 2, 3 or 4", is_whole};
constexpr CodecParameter kRank{"RANK", 1, 1, 256, "a whole number, 1 to 256", is_whole};

constexpr std::array kCatalogue{
    CodecEntry{"none", CodecKind::none, "no compression", kNoParameter, nullptr},
    CodecEntry{"auto", CodecKind::automatic,
               "int8, or CODEC of auto:CODEC, where it shortens steps, else none", kNoParameter,
               nullptr},
    CodecEntry{"bf16", CodecKind::codec, "16 bits: float32 rounded to its upper 16 bits",
               kNoParameter, [](double) { return bf16_codec(); }},
    CodecEntry{"fp16", CodecKind::codec,
               "16 bits: half precision, each block scaled into its range", kNoParameter,
               [](double) { return fp16_codec(); }},
    CodecEntry{"int8", CodecKind::codec, "8 bits: multiples of 1/127 of the block's largest value",
               kNoParameter, [](double) { return int8_codec(); }},
    CodecEntry{"int4", CodecKind::codec, "4 bits: multiples of 1/7 of the block's largest value",
               kNoParameter, [](double) { return int4_codec(); }},
    CodecEntry{"qsgd", CodecKind::codec,
               "2, 4 or 8 bits: as int8, with stochastic rounding, unbiased", kQsgdBits,
               [](double bits) { return qsgd_codec(static_cast<int>(bits)); }},
    CodecEntry{"rotation", CodecKind::codec,
               "1 to 4 bits after a random rotation, which spreads large values", kRotationBits,
               [](double bits) { return rotation_codec(static_cast<int>(bits)); }},
    CodecEntry{"two_bit", CodecKind::codec, "2 bits: the sign, and one of two magnitudes per block",
               kNoParameter, [](double) { return two_bit_codec(); }},
    CodecEntry{"ternary", CodecKind::codec,
               "1.6 bits: -1, 0 or 1 times the block's largest value, unbiased", kNoParameter,
               [](double) { return ternary_codec(); }},
    CodecEntry{"one_bit", CodecKind::codec, "1 bit: the sign, times the block's mean magnitude",
               kNoParameter, [](double) { return one_bit_codec(); }},
    CodecEntry{"top_k", CodecKind::codec, "the largest FRACTION of the values, with their indexes",
               kFraction, top_k_codec},
    CodecEntry{"random_mask", CodecKind::codec,
               "a random FRACTION of the values, the same on all ranks", kMaskFraction,
               random_mask_codec},
    CodecEntry{"power_sgd", CodecKind::low_rank,
               "low rank: each matrix as a product of two with RANK columns", kRank, nullptr},
};

std::vector<std::string_view> names() {
  std::vector<std::string_view> all;
  for (const CodecEntry& entry : kCatalogue) all.push_back(entry.name);
  return all;
}

std::string usage(const CodecEntry& entry) {
  if (entry.parameter.name.empty()) return std::string(entry.name);
  return fmt::format("{}[:{}]", entry.name, entry.parameter.name);
}

std::string unknown_codec(std::string_view name) {
  const auto known = names();
  const auto nearest = nearest_name(name, known);
  return fmt::format("unknown codec \"{}\"{}; known:\n{}", name,
                     nearest ? fmt::format(" (did you mean \"{}\"?)", *nearest) : "",
                     describe_codecs());
}

std::optional<double> number(std::string_view text) {
  double value = 0;
  const char* const end = text.data() + text.size();
  const auto read = std::from_chars(text.data(), end, value);
  if (read.ec != std::errc() || read.ptr != end || !std::isfinite(value)) return std::nullopt;
  return value;
}

}  // namespace

std::span<const CodecEntry> codec_catalogue() {
  return kCatalogue;
}

std::string describe_codecs() {
  std::string text;
  for (const CodecEntry& entry : kCatalogue) {
    text += fmt::format("  {:<23} {}", usage(entry), entry.summary);
    if (!entry.parameter.name.empty()) {
      text += fmt::format("; {}: {}, by default {}", entry.parameter.name, entry.parameter.allowed,
                          entry.parameter.standard);
    }
    text += '\n';
  }
  text.pop_back();
  return text;
}

std::string CodecSpec::text() const {
  if (entry->parameter.name.empty()) return std::string(entry->name);
  return fmt::format("{}:{}", entry->name, parameter);
}

Result<CodecSpec> parse_codec(std::string_view text) {
  const std::size_t colon = text.find(':');
  const std::string_view name = text.substr(0, colon);
  const auto entry = std::ranges::find(kCatalogue, name, &CodecEntry::name);
  if (entry == kCatalogue.end()) return failure(ErrorKind::invalid_argument, unknown_codec(name));
  const CodecParameter& parameter = entry->parameter;
  if (colon == std::string_view::npos) return CodecSpec{&*entry, parameter.standard};
  if (parameter.name.empty()) {
    return failure(
        ErrorKind::invalid_argument,
        fmt::format("codec \"{}\": {} takes no parameter; write \"{}\"", text, name, name));
  }
  const std::optional<double> value = number(text.substr(colon + 1));
  if (!value || *value < parameter.low || *value > parameter.high || !parameter.fits(*value)) {
    return failure(ErrorKind::invalid_argument,
                   fmt::format("codec \"{}\": the {} of {} is {}, as in \"{}:{}\"", text,
                               parameter.name, name, parameter.allowed, name, parameter.standard));
  }
  return CodecSpec{&*entry, *value};
}

Status check_codec(std::string_view text) {
  constexpr std::string_view kAuto = "auto:";
  const bool chooses = text.starts_with(kAuto);
  GRADWIRE_ASSIGN_OR_RETURN(const auto spec,
                            parse_codec(chooses ? text.substr(kAuto.size()) : text));
  if (!chooses || spec.kind() != CodecKind::automatic) return {};
  return failure(ErrorKind::invalid_argument,
                 fmt::format("codec \"{}\": auto needs another codec, as in auto:int8", text));
}

Result<std::unique_ptr<Codec>> make_codec(const CodecSpec& spec) {
  if (spec.entry->make) return spec.entry->make(spec.parameter);
  return failure(ErrorKind::invalid_argument,
                 fmt::format("\"{}\" is not a codec of single values: {}", spec.entry->name,
                             spec.entry->summary));
}

Result<std::unique_ptr<Codec>> make_codec(std::string_view text) {
  GRADWIRE_ASSIGN_OR_RETURN(const auto spec, parse_codec(text));
  return make_codec(spec);
}

}  // namespace gradwire::codec
