#include <algorithm>

#include "gradwire/gradient/coded_averager.h"

namespace gradwire {
namespace {

/// Factor of the fraction from one part of the warm-up to the next.
constexpr double kDecay = 0.25;

}  // namespace

std::unique_ptr<Codec> codec_of_step(const CodecSpec& spec, std::int64_t step, int warmup_steps) {
  if (step >= warmup_steps) return value_or_throw(make_codec(spec));
  if (spec.entry->parameter.name != "FRACTION") return nullptr;
  std::int64_t parts = 0;  // Parts with a larger fraction than the codec's own.
  for (double f = kDecay; f > spec.parameter; f *= kDecay) ++parts;
  CodecSpec now = spec;
  double fraction = kDecay;
  for (std::int64_t part = step * parts / warmup_steps; part > 0; --part) fraction *= kDecay;
  now.parameter = std::clamp(fraction, spec.parameter, spec.entry->parameter.high);
  return value_or_throw(make_codec(now));
}

}  // namespace gradwire
