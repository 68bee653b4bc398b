#include <algorithm>

#include "gradwire/schedule/program_set.h"
#include "tests/schedule/mutation_sites.h"
#include "tests/schedule/mutations.h"

/// One op is changed.
namespace gradwire::test {
namespace {

using enum schedule::Fault;

bool drop_send(EditableSchedule& s, Random& r) {
  return remove_one(s, r, is_send);
}

bool drop_receive(EditableSchedule& s, Random& r) {
  return remove_one(s, r, is_receive);
}

bool drop_reduce(EditableSchedule& s, Random& r) {
  return remove_one(s, r, is_reduce);
}

bool drop_copy(EditableSchedule& s, Random& r) {
  return remove_one(s, r, [](const Site& site) { return is_kind(site, schedule::OpKind::copy); });
}

/// Repeats an op right after the original; dependents of the original depend on both.
void duplicate(const Site& site) {
  EditableOp again = site.entry();
  again.after.push_back(site.index);
  site.program().insert(site.index + 1, again);
  for (schedule::OpIndex i = site.index + 2; i < site.program().ops.size(); ++i) {
    auto& after = site.program().ops[i].after;
    if (std::ranges::find(after, site.index) != after.end()) after.push_back(site.index + 1);
  }
}

bool duplicate_send(EditableSchedule& s, Random& r) {
  return change_one(s, r, is_send, duplicate);
}

bool duplicate_receive(EditableSchedule& s, Random& r) {
  return change_one(s, r, is_receive, duplicate);
}

bool duplicate_reduce(EditableSchedule& s, Random& r) {
  return change_one(s, r, is_reduce, duplicate);
}

/// Changes the peer to a rank other than the old one and the op's own.
bool redirect(EditableSchedule& s, Random& r, bool (*fits)(const Site&)) {
  const int ranks = s.frame.ranks;
  if (ranks < 3) return false;
  return change_one(s, r, fits, [ranks](const Site& site) {
    do {
      site.op().peer = (site.op().peer + 1) % ranks;
    } while (site.op().peer == site.rank);
  });
}

bool redirect_send(EditableSchedule& s, Random& r) {
  return redirect(s, r, is_send);
}

bool redirect_receive(EditableSchedule& s, Random& r) {
  return redirect(s, r, is_receive);
}

bool talk_to_itself(EditableSchedule& s, Random& r) {
  return change_one(s, r, has_peer, [](const Site& site) { site.op().peer = site.rank; });
}

bool talk_to_nobody(EditableSchedule& s, Random& r) {
  return change_one(s, r, has_peer, [&r](const Site& site) {
    site.op().peer = r.one_in(2) ? -1 : site.schedule.frame.ranks;
  });
}

bool reach_beyond(EditableSchedule& s, Random& r) {
  return change_one(
      s, r, [](const Site& site) { return !is_barrier(site); },
      [](const Site& site) { used_slice(site).first = 1000; });
}

bool empty_slice(EditableSchedule& s, Random& r) {
  return change_one(
      s, r, [](const Site& site) { return !is_barrier(site); },
      [](const Site& site) { used_slice(site).count = 0; });
}

bool longer_slice(EditableSchedule& s, Random& r) {
  return change_one(
      s, r, [](const Site& site) { return has_peer(site) && !is_barrier(site); },
      [](const Site& site) { ++used_slice(site).count; });
}

bool send_other_chunk(EditableSchedule& s, Random& r) {
  return change_one(
      s, r, [](const Site& site) { return is_send(site) && has_other_chunk(site); }, next_chunk);
}

bool receive_other_chunk(EditableSchedule& s, Random& r) {
  return change_one(
      s, r,
      [](const Site& site) {
        return is_kind(site, schedule::OpKind::recv) && has_other_chunk(site);
      },
      next_chunk);
}

bool write_to_input(EditableSchedule& s, Random& r) {
  return change_one(
      s, r, [](const Site& site) { return !is_send(site) && !is_barrier(site); },
      [](const Site& site) {
        site.op().dst = {schedule::Buffer::input, 0, 1};
      });
}

bool drop_postscale(EditableSchedule& s, Random& r) {
  return change_one(
      s, r, [](const Site& site) { return site.op().postscale; },
      [](const Site& site) { site.op().postscale = false; });
}

bool postscale_early(EditableSchedule& s, Random& r) {
  return change_one(
      s, r, [](const Site& site) { return computes(site) && !site.op().postscale; },
      [](const Site& site) { site.op().postscale = true; });
}

bool postscale_a_send(EditableSchedule& s, Random& r) {
  return change_one(s, r, is_send, [](const Site& site) { site.op().postscale = true; });
}

bool overwrite_instead_of_adding(EditableSchedule& s, Random& r) {
  return change_one(
      s, r, [](const Site& site) { return is_kind(site, schedule::OpKind::recv_reduce); },
      [](const Site& site) {
        site.op().kind = schedule::OpKind::recv;
        site.op().src = {};
        site.op().postscale = false;
      });
}

bool add_instead_of_overwriting(EditableSchedule& s, Random& r) {
  return change_one(
      s, r,
      [](const Site& site) { return is_kind(site, schedule::OpKind::recv) && !is_barrier(site); },
      [](const Site& site) {
        site.op().kind = schedule::OpKind::recv_reduce;
        site.op().src = site.op().dst;
      });
}

/// If every rank computes the sum itself, no single rank may swap operands.
bool swap_operands(EditableSchedule& s, Random& r) {
  const std::string& name = s.frame.name;
  if (name != "recursive_doubling" && name != "exchange" && name != "leaders") return false;
  return change_one(s, r, is_reduce, [](const Site& site) {
    schedule::OperandOrder& order = site.op().order;
    order = order == schedule::OperandOrder::local_first ? schedule::OperandOrder::incoming_first
                                                         : schedule::OperandOrder::local_first;
  });
}

/// Sends this rank's input in place of computed or received data.
bool forward_the_input(EditableSchedule& s, Random& r) {
  if (s.frame.spec.collective != schedule::Collective::all_reduce) return false;
  const auto forwards = [](const Site& site) {
    return is_send(site) && site.op().src.buffer == schedule::Buffer::output &&
           std::ranges::any_of(site.after(), [&](schedule::OpIndex earlier) {
             return site.program().ops[earlier].op.kind != schedule::OpKind::copy;
           });
  };
  return change_one(s, r, forwards,
                    [](const Site& site) { site.op().src.buffer = schedule::Buffer::input; });
}

bool exchange_messages(EditableSchedule& s, Random& r) {
  const auto first = pick(s, r, is_send);
  if (!first) return false;
  auto& ops = first->program().ops;
  for (schedule::OpIndex i = first->index + 1; i < ops.size(); ++i) {
    schedule::Op& later = ops[i].op;
    if (!schedule::sends(later) || later.peer != first->op().peer || later.src == first->op().src)
      continue;
    if (later.src.buffer != schedule::Buffer::scratch && later.src.first == first->op().src.first)
      continue;
    std::swap(later.src, first->op().src);
    return true;
  }
  return false;
}

bool keep_to_oneself(EditableSchedule& s, Random& r) {
  const auto fits = [](const Site& site) { return is_send(site) && !is_barrier(site); };
  return change_one(s, r, fits, [](const Site& site) {
    site.op().kind = schedule::OpKind::copy;
    site.op().peer = -1;
    site.op().dst = {schedule::Buffer::output, 0, 1};
  });
}

bool reduce_where_nothing_is(EditableSchedule& s, Random& r) {
  if (schedule::reduces(s.frame.spec.collective)) return false;
  return change_one(s, r, is_receive,
                    [](const Site& site) { site.op().kind = schedule::OpKind::recv_reduce; });
}

bool local_op_with_peer(EditableSchedule& s, Random& r) {
  return change_one(
      s, r, [](const Site& site) { return !has_peer(site); },
      [](const Site& site) { site.op().peer = 0; });
}

}  // namespace

std::vector<Mutation> op_mutations() {
  return {
      {"drop a send", {unmatched}, drop_send},
      {"drop a receive", {unmatched}, drop_receive},
      {"drop a reduce", {wrong_result}, drop_reduce},
      {"drop a copy", {wrong_result, undefined_read}, drop_copy},
      {"duplicate a send", {unmatched}, duplicate_send},
      {"duplicate a receive", {unmatched}, duplicate_receive},
      {"duplicate a reduce", {wrong_result}, duplicate_reduce},
      {"redirect a send", {unmatched}, redirect_send},
      {"redirect a receive", {unmatched}, redirect_receive},
      {"talk to itself", {malformed}, talk_to_itself},
      {"talk to nobody", {malformed}, talk_to_nobody},
      {"reach beyond the buffer", {malformed}, reach_beyond},
      {"empty slice", {malformed}, empty_slice},
      {"longer slice", {malformed, unmatched}, longer_slice},
      {"send another chunk", {unmatched, race, undefined_read, wrong_result}, send_other_chunk},
      {"receive another chunk",
       {unmatched, race, undefined_read, wrong_result},
       receive_other_chunk},
      {"write to the input", {malformed}, write_to_input},
      {"drop finish", {wrong_result}, drop_postscale},
      {"finish early", {wrong_result}, postscale_early},
      {"finish a send", {malformed}, postscale_a_send},
      {"overwrite instead of adding", {wrong_result}, overwrite_instead_of_adding},
      {"add instead of overwriting",
       {malformed, undefined_read, wrong_result},
       add_instead_of_overwriting},
      {"swap operands on one rank", {wrong_result}, swap_operands},
      {"forward the input", {wrong_result}, forward_the_input},
      {"exchange messages", {unmatched, race, undefined_read, wrong_result}, exchange_messages},
      {"keep a message to oneself", {malformed, unmatched}, keep_to_oneself},
      {"reduce where nothing is reduced", {malformed}, reduce_where_nothing_is},
      {"local op with a peer", {malformed}, local_op_with_peer},
  };
}

}  // namespace gradwire::test
