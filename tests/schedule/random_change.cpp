#include <algorithm>
#include <array>

#include "tests/schedule/mutation_sites.h"
#include "tests/schedule/mutations.h"

namespace gradwire::test {
namespace {

void flip(const Site& site, Random&) {
  schedule::OperandOrder& order = site.op().order;
  order = order == schedule::OperandOrder::local_first ? schedule::OperandOrder::incoming_first
                                                       : schedule::OperandOrder::local_first;
}

void drop_dependency(const Site& site, Random& r) {
  auto& after = site.after();
  if (after.empty()) return;
  after.erase(after.begin() + static_cast<std::ptrdiff_t>(r.below(after.size())));
}

void add_dependency(const Site& site, Random& r) {
  if (site.index > 0) site.after().push_back(static_cast<schedule::OpIndex>(r.below(site.index)));
}

void swap_with_next(const Site& site, Random&) {
  if (site.index + 1 >= site.program().ops.size()) return;
  const auto& after = site.program().ops[site.index + 1].after;
  if (std::ranges::find(after, site.index) != after.end()) return;
  site.program().move_behind(site.index, site.index + 1);
}

void change_chunk(const Site& site, Random&) {
  if (has_other_chunk(site)) next_chunk(site);
}

void toggle_postscale(const Site& site, Random&) {
  site.op().postscale = !site.op().postscale;
}

void change_buffer(const Site& site, Random& r) {
  schedule::Slice& slice = r.one_in(2) ? site.op().src : site.op().dst;
  slice.buffer = static_cast<schedule::Buffer>(r.below(3));
}

}  // namespace

void change_something(EditableSchedule& schedule, Random& random) {
  using Change = void (*)(const Site&, Random&);
  static constexpr std::array<Change, 7> changes{flip,           drop_dependency, add_dependency,
                                                 swap_with_next, change_chunk,    toggle_postscale,
                                                 change_buffer};
  const auto site = pick(schedule, random, [](const Site&) { return true; });
  if (site) changes[random.below(changes.size())](*site, random);
}

}  // namespace gradwire::test
