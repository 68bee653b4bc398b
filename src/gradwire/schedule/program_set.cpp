#include "gradwire/schedule/program_set.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace gradwire::schedule {
namespace {

/// A message's ends and its op, sortable as one number. Ranks have 12 bits (kMaxRanks); a rank's
/// messages to a peer sort in program order.
using MessageKey = std::uint64_t;
static_assert(kMaxRanks <= 1 << 12);

MessageKey message_key(Rank from, Rank to, NodeId node) {
  return static_cast<MessageKey>(from) << 44 | static_cast<MessageKey>(to) << 32 | node;
}

NodeId node_of(MessageKey key) {
  return static_cast<NodeId>(key);
}

MessageKey ends_of(MessageKey key) {
  return key >> 32;
}

struct Messages {
  std::vector<MessageKey> sent;
  std::vector<MessageKey> received;
};

Messages messages_of(const ProgramSet& programs) {
  Messages messages;
  for (NodeId node = 0; node < programs.size(); ++node) {
    const Op& op = programs.op(node);
    const Rank rank = programs.ref(node).rank;
    if (sends(op)) messages.sent.push_back(message_key(rank, op.peer, node));
    if (receives(op)) messages.received.push_back(message_key(op.peer, rank, node));
  }
  std::ranges::sort(messages.sent);
  std::ranges::sort(messages.received);
  return messages;
}

/// The data chunk that defines a slice's length.
std::uint32_t measured_chunk(const PlacedSlice& placed) {
  const Slice& slice = placed.slice;
  return slice.buffer == Buffer::scratch ? placed.program.scratch_mirrors[slice.first]
                                         : slice.first;
}

/// Sender and receiver of a chunk of an all_to_all.
std::pair<Rank, Rank> parcel_of(const PlacedSlice& placed) {
  const auto other = static_cast<Rank>(placed.slice.first);
  return placed.slice.buffer == Buffer::input ? std::pair(placed.rank, other)
                                              : std::pair(other, placed.rank);
}

}  // namespace

ProgramSet::ProgramSet(Schedule schedule) : schedule_(std::move(schedule)) {
  for (Rank rank = 0; rank < schedule_.ranks; ++rank) {
    first_.push_back(size());
    programs_.push_back(schedule_.program(rank));
    for (OpIndex op = 0; op < programs_.back().ops.size(); ++op) refs_.push_back({rank, op});
  }
}

std::vector<NodeId> match_messages(const ProgramSet& programs) {
  std::vector<NodeId> partner(programs.size(), kNoNode);
  const auto [sent, received] = messages_of(programs);
  auto send = sent.begin();
  auto receive = received.begin();
  while (send != sent.end() && receive != received.end()) {
    if (ends_of(*send) < ends_of(*receive)) {
      ++send;
    } else if (ends_of(*receive) < ends_of(*send)) {
      ++receive;
    } else {
      partner[node_of(*send)] = node_of(*receive);
      partner[node_of(*receive)] = node_of(*send);
      ++send;
      ++receive;
    }
  }
  return partner;
}

std::uint32_t chunks_of(const Schedule& schedule, Rank rank, const Program& program,
                        Buffer buffer) {
  if (buffer == Buffer::scratch) return static_cast<std::uint32_t>(program.scratch_mirrors.size());
  const bool is_input = buffer == Buffer::input;
  const std::uint32_t on_root = rank == schedule.spec.root ? schedule.chunks : 0;
  switch (schedule.spec.collective) {
    case Collective::all_gather:
      return is_input ? 1 : schedule.chunks;
    case Collective::reduce_scatter:
      return is_input ? schedule.chunks : 1;
    case Collective::broadcast:
      return is_input ? 0 : schedule.chunks;
    case Collective::reduce:
      return is_input ? schedule.chunks : on_root;
    case Collective::gather:
      return is_input ? 1 : on_root;
    case Collective::scatter:
      return is_input ? on_root : 1;
    case Collective::all_reduce:
    case Collective::barrier:
    case Collective::point_to_point:
    case Collective::all_to_all:
      return schedule.chunks;
  }
  return 0;
}

bool sends(const Op& op) {
  return op.kind == OpKind::send;
}

bool receives(const Op& op) {
  return op.kind == OpKind::recv || op.kind == OpKind::recv_reduce;
}

bool same_length(const Schedule& schedule, const PlacedSlice& a, const PlacedSlice& b) {
  if (a.slice.count != b.slice.count) return false;
  if (a.slice.count == 0 || schedule.chunks == 1) return true;
  if (schedule.spec.collective == Collective::all_to_all) {
    return a.slice.count == 1 && parcel_of(a) == parcel_of(b);
  }
  return has_parts(schedule.spec.collective) || measured_chunk(a) == measured_chunk(b);
}

const Slice& extent(const Op& op) {
  return sends(op) ? op.src : op.dst;
}

}  // namespace gradwire::schedule
