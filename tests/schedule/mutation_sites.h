#pragma once

#include <functional>
#include <optional>

#include "gradwire/base/random.h"
#include "tests/schedule/editable.h"

/// Places in a schedule, for mutations to choose from.
namespace gradwire::test {

/// An op of the schedule that is being changed.
struct Site {
  EditableSchedule& schedule;
  Rank rank;
  schedule::OpIndex index;

  EditableProgram& program() const { return schedule.programs[static_cast<std::size_t>(rank)]; }
  EditableOp& entry() const { return program().ops[index]; }
  schedule::Op& op() const { return entry().op; }
  std::vector<schedule::OpIndex>& after() const { return entry().after; }
  schedule::Collective collective() const { return schedule.frame.spec.collective; }
};

using SitePredicate = std::function<bool(const Site&)>;

/// Returns a random site out of those that `fits` accepts; nothing if there is none.
std::optional<Site> pick(EditableSchedule& schedule, Random& random, const SitePredicate& fits);

/// Calls `change` on a random fitting site; returns false if there is none.
bool change_one(EditableSchedule& schedule, Random& random, const SitePredicate& fits,
                const std::function<void(const Site&)>& change);

/// Removes a random fitting op; returns false if there is none.
bool remove_one(EditableSchedule& schedule, Random& random, const SitePredicate& fits);

bool is_send(const Site& site);
bool is_receive(const Site& site);
bool is_kind(const Site& site, schedule::OpKind kind);
bool is_reduce(const Site& site);
bool has_peer(const Site& site);

/// Returns true for a reduce or a recv_reduce.
bool computes(const Site& site);

bool is_barrier(const Site& site);

/// The slice that it sends or writes.
schedule::Slice& used_slice(const Site& site);

/// Returns true if its slice could be another chunk of the same buffer.
bool has_other_chunk(const Site& site);

/// Changes its slice to the next chunk.
void next_chunk(const Site& site);

}  // namespace gradwire::test
