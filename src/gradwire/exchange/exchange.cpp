#include "gradwire/exchange/exchange.h"

#include <fmt/format.h>

#include "gradwire/base/refuse.h"

namespace gradwire::exchange {

void check_unit(const std::vector<UnitShape>& units, std::size_t unit, const LentSpan& data) {
  if (unit >= units.size()) refuse("bucket {} of {} does not exist", unit, units.size());
  const UnitShape& shape = units[unit];
  if (data.count == shape.count && data.type == shape.type) return;
  refuse("bucket {} has {} {}, but {} {} were given", unit, shape.count, name_of(shape.type),
         data.count, name_of(data.type));
}

void check_idle(std::size_t unit, bool in_flight) {
  if (in_flight) refuse("bucket {} was started again before it was waited for", unit);
}

void check_shards(std::string_view what, std::size_t unit, std::size_t count, std::size_t shard,
                  int ranks) {
  if (count == shard * static_cast<std::size_t>(ranks)) return;
  refuse("{} of unit {}: {} elements are not {} shards of {}", what, unit, count, ranks, shard);
}

void check_codable(const std::vector<UnitShape>& units, const std::string& codec) {
  for (std::size_t i = 0; i < units.size(); ++i) {
    const UnitShape& shape = units[i];
    if (shape.skip_compression || shape.type == DataType::float32) continue;
    refuse(
        "codec {} requires float32, but {} is {}: set skip_compression for its bucket, or use "
        "codec none",
        codec, shape.tensors.empty() ? fmt::format("bucket {}", i) : shape.tensors[0].name,
        name_of(shape.type));
  }
}

}  // namespace gradwire::exchange
