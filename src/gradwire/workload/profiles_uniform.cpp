#include <charconv>
#include <cmath>

#include <fmt/format.h>

#include "gradwire/base/refuse.h"
#include "gradwire/base/units.h"
#include "gradwire/workload/profiles_builder.h"

namespace gradwire::workload {
namespace {

constexpr int kMaxLayers = 10'000;

[[noreturn]] void refuse_name(const std::string& name) {
  refuse(
      "profile \"{}\": expected uniform:LAYERSxBYTES, at most {} layers of a multiple of "
      "4 bytes, as in uniform:16x6250000 or uniform:12x4M",
      name, kMaxLayers);
}

/// The most square matrix of `count` elements.
std::vector<std::int64_t> matrix_of(std::int64_t count) {
  auto rows = static_cast<std::int64_t>(std::sqrt(static_cast<double>(count)));
  while (count % rows != 0) --rows;
  return {rows, count / rows};
}

}  // namespace

LayerProfile uniform_profile(const std::string& name) {
  const std::string size = name.substr(name.find(':') + 1);
  int layers = 0;
  const auto [end, error] = std::from_chars(size.data(), size.data() + size.size(), layers);
  const auto at = static_cast<std::size_t>(end - size.data());
  if (error != std::errc() || layers < 1 || layers > kMaxLayers || size.substr(at, 1) != "x")
    refuse_name(name);
  const auto bytes = parse_bytes(size.substr(at + 1));
  if (!bytes || *bytes < sizeof(float) || *bytes % sizeof(float) != 0) refuse_name(name);
  ProfileBuilder builder(name);
  const auto shape = matrix_of(static_cast<std::int64_t>(*bytes / sizeof(float)));
  for (int i = 0; i < layers; ++i) {
    const std::string layer = fmt::format("layer{}", i);
    builder.add(layer, {weight(layer, shape)}, 1);
  }
  return builder.finish().profile;
}

}  // namespace gradwire::workload
