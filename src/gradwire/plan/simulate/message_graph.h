#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "gradwire/plan/simulate/fabric.h"
#include "gradwire/schedule/schedule.h"

namespace gradwire {

/// Ops of some ranks, what each waits for, and which exchange messages with each other: what a
/// simulation of a schedule needs, in which one host can stand for all.
class MessageGraph {
 public:
  using Number = std::uint32_t;
  static constexpr Number kNone = static_cast<Number>(-1);

  struct Op {
    OpKind kind = OpKind::copy;
    bool inside = false;     ///< A message that stays in its host.
    Number rank = 0;         ///< Among those that are simulated.
    Number host = 0;         ///< Likewise.
    Number partner = kNone;  ///< The other end of a message.
    double share = 0;        ///< Of all chunks' bytes, what it moves.
  };
  /// An op that waits for another: for all of it, or piece by piece (flows_through()).
  struct Arrow {
    Number to = 0;
    bool whole = false;
  };

  /// All ranks of a fabric.
  static MessageGraph of_all(const Schedule& schedule, const Fabric& fabric);

  /// One host that stands for all: where every rank does the same as the corresponding rank of
  /// the next host, with its peers one host further on (rotation), or with its peers' numbers xor
  /// its own host's (as in an exchange of doubling distance). Then every host is at the same point
  /// at the same time, and what arrives at one is what it has sent itself. `host` is the one whose
  /// program is taken. Nothing: the schedule is not of that kind. Whether it is, is looked up for
  /// a few hosts, as there are too many, and what they send is compared: ranks may add up in
  /// different orders.
  static std::optional<MessageGraph> of_one(const Schedule& schedule, const Fabric& fabric,
                                            int host);

  Number size() const { return static_cast<Number>(ops_.size()); }
  Number ranks() const { return ranks_; }
  Number hosts() const { return hosts_; }
  const Op& op(Number number) const { return ops_[number]; }
  /// What waits for an op, and the other way round.
  std::span<const Arrow> behind(Number op) const { return slice(behind_, behind_first_, op); }
  std::span<const Arrow> before(Number op) const { return slice(before_, before_first_, op); }

 private:
  static std::span<const Arrow> slice(const std::vector<Arrow>& arrows,
                                      const std::vector<Number>& first, Number op) {
    return std::span(arrows).subspan(first[op], first[op + 1] - first[op]);
  }
  /// Returns the number of the program's first op.
  Number add(const Program& program, const Fabric& fabric, std::uint32_t chunks, Rank rank,
             Rank stands_for);
  void connect_behind();

  std::vector<Op> ops_;
  std::vector<Arrow> before_, behind_;
  std::vector<Number> before_first_{0}, behind_first_;
  Number ranks_ = 0, hosts_ = 0;
};

/// What every host sends to the host that is `d` further on (or whose number is its own xor d): of
/// all chunks' bytes, by d.
struct HostTraffic {
  std::vector<double> shares;
  bool rotation = true;

  bool only_neighbours() const;
};

/// Nothing if hosts do not do the same, as of_one() has it.
std::optional<HostTraffic> host_traffic(const Schedule& schedule, const Fabric& fabric);

}  // namespace gradwire
