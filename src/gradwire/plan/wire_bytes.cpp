#include "gradwire/plan/wire_bytes.h"

#include <memory>

#include <fmt/format.h>

#include "gradwire/codec/catalogue.h"

namespace gradwire {
namespace {

constexpr std::size_t kCount = std::size_t{1} << 22;

double bytes_each(const Codec& codec) {
  return static_cast<double>(codec.encoded_bytes(kCount)) / kCount;
}

}  // namespace

WireBytes wire_bytes(const std::string& codec, int ranks) {
  const CodecSpec spec = value_or_throw(parse_codec(codec));
  if (spec.kind() == CodecKind::none) return {};
  if (spec.kind() != CodecKind::codec) {
    throw Exception(ErrorKind::invalid_argument,
                    fmt::format("codec \"{}\": its encoded size depends on more than the number of "
                                "values; plan with none, bf16, int8, int4 or top_k:0.01",
                                codec));
  }
  const std::unique_ptr<Codec> made = value_or_throw(make_codec(spec));
  const std::unique_ptr<Codec> mean = made->for_mean(ranks);
  return {.contribution = bytes_each(*made),
          .mean = bytes_each(mean ? *mean : *made),
          .feedback = made->wants_feedback(),
          .coded = true};
}

}  // namespace gradwire
