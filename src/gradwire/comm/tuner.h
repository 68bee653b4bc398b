#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "gradwire/schedule/cost.h"
#include "gradwire/schedule/schedule.h"
#include "gradwire/topology/cluster.h"
#include "gradwire/topology/topology.h"

namespace gradwire {

/// What the cost model thinks of an algorithm.
struct AlgorithmEstimate {
  std::string algorithm;
  Duration time = Duration::zero();
  std::uint32_t steps = 0;     ///< Hops of the longest chain of messages.
  std::size_t bytes_sent = 0;  ///< By the rank that sends most.
  bool measured = false;       ///< The time is not the model's: `gradwire tune` found it.
  int segments = 0;            ///< Of each message, if that was measured, too; else 0.
};

/// Chooses the algorithm of a collective: the one that was measured to be the fastest for about
/// that size, and where nothing was measured the one whose schedule the cost model finds fastest on
/// the topology. Depends on nothing but its arguments, so that all ranks choose the same.
/// Thread-safe.
class Tuner {
 public:
  explicit Tuner(Topology topology, std::size_t segment_bytes = 128 * 1024,
                 std::vector<MeasuredChoice> choices = {});
  ~Tuner();

  /// Name of the algorithm for `bytes` bytes of all chunks together. The first question about a
  /// collective and power of two of bytes takes milliseconds with 64 ranks; later ones nothing.
  std::string choose(const CollectiveSpec& spec, std::size_t bytes);

  /// The estimates that decide, best first; before them what was measured, if that decides.
  std::vector<AlgorithmEstimate> explain(const CollectiveSpec& spec, std::size_t bytes);

  /// Into about how many segments the algorithm's messages are best cut at such a size, if that was
  /// measured; else 0.
  int segments(Collective collective, std::size_t bytes, const std::string& algorithm) const;

  /// The links that are assumed where nothing has been measured: 1 Gb/s Ethernet, 40 us.
  static Topology assumed(int ranks);
  static Link assumed_link();

 private:
  struct Candidate {
    std::string name;
    std::unique_ptr<ScheduleCost> cost;
    std::uint32_t chunks = 1;
    double crowding = 1;         ///< A factor: many ranks send to one at the same time.
    double largest_message = 1;  ///< As a part of all chunks.
  };

  /// The ranks are the root and the target, which are 0 where there are none.
  using Question = std::tuple<Collective, Rank, Rank>;

  const std::vector<Candidate>& candidates(const CollectiveSpec& spec);
  std::vector<AlgorithmEstimate> ranking(const CollectiveSpec& spec, std::size_t bytes);
  Duration estimate(const Candidate& candidate, std::size_t bytes) const;

  /// What was measured for the nearest size, if that is near; else null.
  const MeasuredChoice* measured(Collective collective, std::size_t bytes) const;
  void prefer_measured(Collective collective, std::size_t bytes,
                       std::vector<AlgorithmEstimate>& ranked) const;

  Topology topology_;
  std::size_t segment_bytes_;
  std::vector<MeasuredChoice> choices_;
  std::mutex mutex_;
  std::map<Question, std::vector<Candidate>> candidates_;
  std::map<std::pair<Question, std::size_t>, std::vector<AlgorithmEstimate>> rankings_;
};

}  // namespace gradwire
