#include "gradwire/schedule/verify/place.h"

namespace gradwire::proof {

std::vector<Aliasing> aliasings(Collective collective) {
  if (collective == Collective::all_reduce || collective == Collective::all_gather ||
      collective == Collective::reduce) {
    return {Aliasing::separate, Aliasing::in_place};
  }
  return {Aliasing::separate};
}

Slice place_of(const Schedule& schedule, Rank rank, const Slice& slice, Aliasing aliasing) {
  if (aliasing == Aliasing::separate || slice.buffer != Buffer::input) return slice;
  const CollectiveSpec& spec = schedule.spec;
  if (spec.collective == Collective::reduce && rank != spec.root) return slice;
  const bool gathers = spec.collective == Collective::all_gather;
  const std::uint32_t shift = gathers ? static_cast<std::uint32_t>(rank) : 0;
  return {Buffer::output, slice.first + shift, slice.count};
}

bool stays_in_place(const Schedule& schedule, Rank rank, const Op& op, Aliasing aliasing) {
  return op.kind == OpKind::copy && !op.postscale &&
         place_of(schedule, rank, op.src, aliasing) == place_of(schedule, rank, op.dst, aliasing);
}

}  // namespace gradwire::proof
