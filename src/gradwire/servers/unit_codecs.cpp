#include "gradwire/servers/unit_codecs.h"

#include <utility>

#include "gradwire/base/random.h"
#include "gradwire/base/refuse.h"
#include "gradwire/exchange/coded_exchange.h"

namespace gradwire::servers {
namespace {

codec::CodecSpec spec_of(const std::string& text) {
  if (text.starts_with("auto")) {
    refuse("codec {}: parameter servers need a codec of single values, such as int8", text);
  }
  codec::CodecSpec spec = value_or_throw(codec::parse_codec(text));
  if (spec.kind() == codec::CodecKind::low_rank) {
    refuse("codec {}: parameter servers need a codec of single values, such as int8", text);
  }
  return spec;
}

}  // namespace

void check(const CodecSettings& settings) {
  spec_of(settings.push);
  if (settings.pull != "none" && settings.pull != "bf16") {
    refuse("pull_codec {}: expected none or bf16", settings.pull);
  }
}

UnitCodecs::UnitCodecs(const CodecSettings& settings, const std::vector<exchange::UnitShape>& units,
                       int slices)
    : settings_(settings),
      slices_(static_cast<std::size_t>(slices)),
      spec_(spec_of(settings.push)) {
  check(settings);
  if (settings.any()) exchange::check_codable(units, settings.push);
  for (const exchange::UnitShape& unit : units) coded_.push_back(!unit.skip_compression);
  if (settings.push != "none") push_ = value_or_throw(codec::make_codec(spec_));
  if (settings.pull != "none") pull_ = value_or_throw(codec::make_codec(settings.pull));
}

UnitCodecs::Pointer UnitCodecs::push(std::size_t unit, std::int64_t clock) const {
  if (!push_ || !is_coded(unit)) return nullptr;
  if (clock >= settings_.warmup_steps) return push_;
  return exchange::codec_of_step(spec_, clock, settings_.warmup_steps);
}

std::uint64_t UnitCodecs::seed_of(std::size_t unit, int server, int group,
                                  std::int64_t clock) const {
  return mixed_seed({settings_.seed, unit, static_cast<std::uint64_t>(server),
                     static_cast<std::uint64_t>(group), static_cast<std::uint64_t>(clock)});
}

}  // namespace gradwire::servers
