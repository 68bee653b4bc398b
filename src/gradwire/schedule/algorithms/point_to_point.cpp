#include "gradwire/schedule/algorithms/algorithms.h"

namespace gradwire::schedule {
namespace {

constexpr Slice kInput{Buffer::input, 0, 1};
constexpr Slice kOutput{Buffer::output, 0, 1};

Program message_program(Rank rank, Rank from, Rank to) {
  ProgramBuilder builder;
  if (from == to) {
    if (rank == to) builder.copy(kOutput, kInput);
  } else if (rank == from) {
    builder.send(to, kInput);
  } else if (rank == to) {
    builder.recv(from, kOutput);
  }
  return std::move(builder).build();
}

}  // namespace

Schedule point_to_point(const topology::Topology& topology, Rank from, Rank to) {
  return {.spec = {.collective = Collective::point_to_point, .root = from, .target = to},
          .ranks = topology.ranks(),
          .chunks = 1,
          .program = [from, to](Rank rank) { return message_program(rank, from, to); },
          .name = "point_to_point"};
}

}  // namespace gradwire::schedule
