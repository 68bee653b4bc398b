#include <algorithm>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "gradwire/schedule/algorithms/algorithms.h"
#include "gradwire/schedule/algorithms/sums.h"
#include "gradwire/schedule/algorithms/uneven.h"

/// For hosts with several ranks: reduces within each host, then across hosts, so that each chunk
/// crosses a host's port as few times as with one rank per host.
///
/// The data is cut into stripes, one for each rank of the largest host. Each stripe is cut into
/// parts, one for each host, larger where ports are faster (uneven.h). A stripe has a leader on
/// every host. The leaders of a stripe do a direct all-reduce among themselves, in which each host
/// owns its part. So all ranks of a host share the work, and all parts are in flight at the same
/// time:
///
///     within hosts:  all ranks to the stripe's leader, which reduces
///     across hosts:  to the owner's leader, which reduces, and back to all leaders
///     within hosts:  each leader to all ranks
namespace gradwire::schedule {
namespace {

/// Assignment of stripes and parts to ranks.
class Stripes {
 public:
  explicit Stripes(topology::Topology topology) : topology_(std::move(topology)) {
    std::vector<double> bandwidths;
    for (int host = 0; host < hosts(); ++host) {
      stripes_ = std::max(stripes_, static_cast<int>(ranks_on(host).size()));
      bandwidths.push_back(topology_.host(host).port().bytes_per_second);
    }
    owners_ = Owners::of_counts(uneven_counts(bandwidths));
  }

  int stripes() const { return stripes_; }
  int hosts() const { return topology_.hosts(); }
  int chunks() const { return stripes_ * static_cast<int>(owners_.chunks()); }
  /// The chunks of a stripe that host `owner` owns, as a slice of the input; may be empty.
  Slice part(int stripe, int owner) const {
    return input(stripe * static_cast<int>(owners_.chunks()) + owners_.begin(owner),
                 owners_.count(owner));
  }
  int host_of(Rank rank) const { return topology_.host_of(rank); }
  std::span<const Rank> ranks_on(int host) const { return topology_.ranks_on(host); }
  Rank leader(int host, int stripe) const {
    const auto ranks = ranks_on(host);
    return ranks[static_cast<std::size_t>(stripe) % ranks.size()];
  }

 private:
  topology::Topology topology_;
  int stripes_ = 1;  ///< Maximum number of ranks on a host.
  Owners owners_;    ///< Per host; the same for every stripe.
};

class ProgramOfRank {
 public:
  ProgramOfRank(const Stripes& stripes, Rank rank)
      : stripes_(stripes),
        rank_(rank),
        host_(stripes.host_of(rank)),
        sums_(static_cast<std::size_t>(stripes.chunks())) {}

  Program build() {
    // Receives match the order of sends: sums first, then results.
    for_all_chunks([this](int stripe, int owner) { add_up(stripe, owner); });
    for_all_chunks([this](int stripe, int owner) { hand_out(stripe, owner); });
    return std::move(builder_).build();
  }

 private:
  /// Chunks that cross hosts go first; each host starts with another host's chunks.
  template <class Visit>
  void for_all_chunks(Visit visit) {
    for (int distance = 1; distance <= stripes_.hosts(); ++distance) {
      for (int stripe = 0; stripe < stripes_.stripes(); ++stripe) {
        const int owner = (host_ + distance) % stripes_.hosts();
        if (stripes_.part(stripe, owner).count > 0) visit(stripe, owner);
      }
    }
  }

  static Slice result(const Slice& part) { return {Buffer::output, part.first, part.count}; }
  Rank leader_here(int stripe) const { return stripes_.leader(host_, stripe); }
  OpIndex& sum_of(const Slice& part) { return sums_[part.first]; }

  void add_up(int stripe, int owner) {
    const Slice part = stripes_.part(stripe, owner);
    if (leader_here(stripe) != rank_) {
      builder_.send(leader_here(stripe), part);
      return;
    }
    const OpIndex sum = add_up_host(part);
    if (owner == host_) {
      sum_of(part) = add_up_hosts(stripe, part, sum);
      builder_.postscale(sum_of(part));
    } else {
      builder_.send(stripes_.leader(owner, stripe), result(part), {sum});
    }
  }

  void hand_out(int stripe, int owner) {
    const Slice part = stripes_.part(stripe, owner);
    if (leader_here(stripe) != rank_) {
      builder_.recv(leader_here(stripe), result(part));
      return;
    }
    if (owner == host_) {
      for (int other : others_from(host_, stripes_.hosts())) {
        builder_.send(stripes_.leader(other, stripe), result(part), {sum_of(part)});
      }
    } else {
      sum_of(part) = builder_.recv(stripes_.leader(owner, stripe), result(part));
    }
    for (Rank local : stripes_.ranks_on(host_)) {
      if (local != rank_) builder_.send(local, result(part), {sum_of(part)});
    }
  }

  /// result = sum over this host's ranks.
  OpIndex add_up_host(const Slice& part) {
    const auto here = stripes_.ranks_on(host_);
    std::vector<Rank> locals(here.begin(), here.end());
    std::erase(locals, rank_);
    return reduce_or_copy(builder_, locals, part, result(part));
  }

  /// result += the other hosts' sums.
  OpIndex add_up_hosts(int stripe, const Slice& part, OpIndex own) {
    Contributions hosts;
    for (int other : others_from(host_, stripes_.hosts())) {
      const Rank leader = stripes_.leader(other, stripe);
      hosts.upper.push_back(receive_to_scratch(builder_, leader, part));
    }
    return reduce_in_rank_order(builder_, result(part), own, hosts);
  }

  const Stripes& stripes_;
  Rank rank_;
  int host_;
  std::vector<OpIndex> sums_;  ///< By a part's first chunk: the op that completes it on a leader.
  ProgramBuilder builder_;
};

}  // namespace

Schedule hierarchical_all_reduce(const topology::Topology& topology) {
  const auto stripes = std::make_shared<const Stripes>(topology);
  return {.spec = {Collective::all_reduce},
          .ranks = topology.ranks(),
          .chunks = static_cast<std::uint32_t>(stripes->chunks()),
          .program = [stripes](Rank rank) { return ProgramOfRank(*stripes, rank).build(); },
          .name = "hierarchical"};
}

}  // namespace gradwire::schedule
