#include <algorithm>

#include "gradwire/schedule/program_set.h"
#include "gradwire/schedule/verify/hazards.h"
#include "tests/schedule/mutation_sites.h"
#include "tests/schedule/mutations.h"

/// Ops wait for too little or too much.
namespace gradwire::test {
namespace {

using enum schedule::Fault;

bool forget_to_wait(EditableSchedule& s, Random& r, bool (*fits)(const Site&)) {
  // If the number of ranks is no power of two, a barrier's last rounds are redundant. A pairwise
  // exchange waits only to avoid incast, not for data.
  if (s.frame.name == "pairwise") return false;
  const auto needed = [&](const Site& site) {
    const int ranks = s.frame.ranks;
    return fits(site) && !site.after().empty() && (!is_barrier(site) || ranks == 4 || ranks == 8);
  };
  return change_one(s, r, needed, [](const Site& site) { site.after().clear(); });
}

bool send_too_early(EditableSchedule& s, Random& r) {
  return forget_to_wait(s, r, is_send);
}

bool reduce_too_early(EditableSchedule& s, Random& r) {
  return forget_to_wait(s, r, is_reduce);
}

bool wait_for_itself(EditableSchedule& s, Random& r) {
  const auto any = [](const Site&) { return true; };
  return change_one(s, r, any, [](const Site& site) { site.after().push_back(site.index); });
}

bool wait_for_nothing(EditableSchedule& s, Random& r) {
  const auto any = [](const Site&) { return true; };
  return change_one(s, r, any, [](const Site& site) { site.after().push_back(10000); });
}

/// The order of the schedule's ops, for choosing places.
struct OpOrder {
  explicit OpOrder(const EditableSchedule& schedule)
      : set(schedule.build()),
        partner(schedule::match_messages(set)),
        graph(set, partner),
        order(schedule::proof::order_ops(graph, schedule::proof::previous_in_stream(set)).order) {}

  bool before(Rank rank, schedule::OpIndex earlier, schedule::NodeId later) const {
    return schedule::proof::Precedence(set, graph, order, rank).bytewise(earlier, later);
  }

  schedule::ProgramSet set;
  std::vector<schedule::NodeId> partner;
  schedule::proof::WaitGraph graph;
  std::vector<schedule::NodeId> order;
};

/// Delays a send until a receive that cannot complete without it.
bool wait_in_a_circle(EditableSchedule& s, Random& r) {
  const auto send = pick(s, r, is_send);
  if (!send) return false;
  const OpOrder order(s);
  const auto& ops = send->program().ops;
  for (schedule::OpIndex i = send->index + 1; i < ops.size(); ++i) {
    // Messages to a peer keep their order.
    if (schedule::sends(ops[i].op) && ops[i].op.peer == send->op().peer) return false;
    if (!schedule::receives(ops[i].op)) continue;
    if (!order.before(send->rank, send->index, order.set.node(send->rank, i))) continue;
    if (std::ranges::any_of(ops, [&](const EditableOp& op) {
          return std::ranges::find(op.after, send->index) != op.after.end();
        })) {
      continue;
    }
    send->program().move_behind(send->index, i);
    send->program().ops[i].after.push_back(i - 1);
    return true;
  }
  return false;
}

/// Makes a receive depend on another one that may complete after its message arrives.
bool make_receive_wait(EditableSchedule& s, Random& r) {
  const OpOrder order(s);
  const auto second = pick(s, r, is_receive);
  if (!second) return false;
  const schedule::NodeId node = order.set.node(second->rank, second->index);
  for (schedule::OpIndex i = 0; i < second->index; ++i) {
    if (!schedule::receives(second->program().ops[i].op)) continue;
    if (order.before(second->rank, i, order.partner[node])) continue;
    if (order.before(second->rank, second->index, order.set.node(second->rank, i))) continue;
    second->after().push_back(i);
    return true;
  }
  return false;
}

}  // namespace

std::vector<Mutation> order_mutations() {
  return {
      {"send too early", {race, wrong_result}, send_too_early},
      {"reduce too early", {race}, reduce_too_early},
      {"wait for itself", {malformed}, wait_for_itself},
      {"wait for nothing", {malformed}, wait_for_nothing},
      {"wait in a circle", {deadlock}, wait_in_a_circle},
      {"make a receive wait", {receive_waits}, make_receive_wait},
  };
}

}  // namespace gradwire::test
