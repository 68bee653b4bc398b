#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "gradwire/base/error.h"
#include "gradwire/comm/communicator.h"
#include "gradwire/schedule/cost/cost.h"
#include "gradwire/schedule/schedule.h"
#include "gradwire/topology/cluster.h"
#include "gradwire/topology/topology.h"

namespace gradwire {

/// Algorithms that override the tuner, by collective.
using ForcedAlgorithms = std::map<schedule::Collective, std::string>;

/// Parses a comma-separated list of entries: "ring" (for every collective that has an algorithm of
/// that name) or "all_reduce=ring" (for one). Later entries win. `source` names the origin of the
/// text in errors ("GRADWIRE_ALGORITHM"). Fails with invalid_argument on an unknown collective or
/// algorithm; the message lists the known ones.
Result<ForcedAlgorithms> parse_forced_algorithms(std::string_view text, std::string_view source);

/// Chooses the algorithm of a collective: the one measured to be fastest for about that size.
/// Without a measurement, it is the one that the cost model predicts to be fastest on the topology.
/// Depends only on its arguments, so all ranks choose the same. Thread-safe.
class Tuner {
 public:
  explicit Tuner(topology::Topology topology, std::size_t segment_bytes = 128 * 1024,
                 std::vector<topology::MeasuredChoice> choices = {});
  ~Tuner();

  /// Returns the name of the algorithm for `bytes` bytes of all chunks together. The first call per
  /// collective and power of two of bytes takes milliseconds with 64 ranks; later calls are cached.
  std::string choose(const schedule::CollectiveSpec& spec, std::size_t bytes);

  /// Returns the estimates in the order of preference, the best first; a measured choice precedes
  /// modeled ones.
  std::vector<AlgorithmEstimate> explain(const schedule::CollectiveSpec& spec, std::size_t bytes);

  /// Returns the approximate optimum of segments per message of the algorithm at this size, if
  /// measured; else 0.
  int segments(schedule::Collective collective, std::size_t bytes,
               const std::string& algorithm) const;

  /// Links assumed without a measurement: 1 Gb/s Ethernet, 40 us.
  static topology::Topology assumed(int ranks);
  static topology::Link assumed_link();

 private:
  struct Candidate {
    std::string name;
    std::unique_ptr<schedule::ScheduleCost> cost;
  };

  /// The ranks are root and target; 0 if the collective has none.
  using Question = std::tuple<schedule::Collective, Rank, Rank>;

  const std::vector<Candidate>& candidates(const schedule::CollectiveSpec& spec);
  std::vector<AlgorithmEstimate> ranking(const schedule::CollectiveSpec& spec, std::size_t bytes);

  /// Returns the measurement for the nearest size, or null if none is near.
  const topology::MeasuredChoice* measured(schedule::Collective collective,
                                           std::size_t bytes) const;
  void prefer_measured(schedule::Collective collective, std::size_t bytes,
                       std::vector<AlgorithmEstimate>& ranked) const;

  topology::Topology topology_;
  std::size_t segment_bytes_;
  std::vector<topology::MeasuredChoice> choices_;
  std::mutex mutex_;
  std::map<Question, std::vector<Candidate>> candidates_;
  std::map<std::pair<Question, std::size_t>, std::vector<AlgorithmEstimate>> rankings_;
};

}  // namespace gradwire
