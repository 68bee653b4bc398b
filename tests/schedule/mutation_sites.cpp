#include "tests/schedule/mutation_sites.h"

#include <utility>
#include <vector>

#include "gradwire/schedule/program_set.h"

namespace gradwire::test {

std::optional<Site> pick(EditableSchedule& schedule, Random& random, const SitePredicate& fits) {
  std::vector<std::pair<Rank, schedule::OpIndex>> sites;
  for (Rank rank = 0; rank < schedule.frame.ranks; ++rank) {
    const auto ops = schedule.programs[static_cast<std::size_t>(rank)].ops.size();
    for (schedule::OpIndex i = 0; i < ops; ++i) {
      if (fits({schedule, rank, i})) sites.emplace_back(rank, i);
    }
  }
  if (sites.empty()) return std::nullopt;
  const auto [rank, index] = sites[random.below(sites.size())];
  return Site{schedule, rank, index};
}

bool is_send(const Site& site) {
  return schedule::sends(site.op());
}

bool is_receive(const Site& site) {
  return schedule::receives(site.op());
}

bool is_kind(const Site& site, schedule::OpKind kind) {
  return site.op().kind == kind;
}

bool is_reduce(const Site& site) {
  return is_kind(site, schedule::OpKind::reduce);
}

bool has_peer(const Site& site) {
  return is_send(site) || is_receive(site);
}

bool is_barrier(const Site& site) {
  return site.collective() == schedule::Collective::barrier;
}

bool computes(const Site& site) {
  return is_reduce(site) || is_kind(site, schedule::OpKind::recv_reduce);
}

schedule::Slice& used_slice(const Site& site) {
  return is_send(site) ? site.op().src : site.op().dst;
}

bool has_other_chunk(const Site& site) {
  const schedule::Slice& slice = used_slice(site);
  const schedule::Schedule& frame = site.schedule.frame;
  return slice.buffer != schedule::Buffer::scratch && slice.count == 1 &&
         schedule::chunks_of(frame, site.rank, {}, slice.buffer) > 1;
}

void next_chunk(const Site& site) {
  schedule::Slice& slice = used_slice(site);
  slice.first =
      (slice.first + 1) % schedule::chunks_of(site.schedule.frame, site.rank, {}, slice.buffer);
}

bool remove_one(EditableSchedule& schedule, Random& random, const SitePredicate& fits) {
  const auto site = pick(schedule, random, fits);
  if (site) site->program().remove(site->index);
  return site.has_value();
}

bool change_one(EditableSchedule& schedule, Random& random, const SitePredicate& fits,
                const std::function<void(const Site&)>& change) {
  const auto site = pick(schedule, random, fits);
  if (site) change(*site);
  return site.has_value();
}

}  // namespace gradwire::test
