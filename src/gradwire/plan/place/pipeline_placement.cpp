#include "gradwire/plan/place/pipeline_placement.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace gradwire::plan {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

/// The best placement from a layer on with some devices, given by its next stage.
struct Choice {
  double slowest = kNever;
  int stages = 0;       ///< Stages of this placement.
  std::size_t end = 0;  ///< One past the next stage's last layer.
  int replicas = 0;
};

/// Prefix sums over layers, so that computing a stage takes constant time.
class Sums {
 public:
  explicit Sums(const PipelineProblem& problem) : problem_(problem) {
    for (const PipelineLayer& layer : problem.layers) {
      PipelineLayer sum = sums_.back();
      sum.seconds += layer.seconds;
      sum.weight_bytes += layer.weight_bytes;
      sum.kept_bytes += layer.kept_bytes;
      sums_.push_back(sum);
    }
  }

  PipelineStage stage(std::size_t begin, std::size_t end, int replicas, int from_here) const {
    const double weights = sums_[end].weight_bytes - sums_[begin].weight_bytes;
    const double kept = sums_[end].kept_bytes - sums_[begin].kept_bytes;
    const double computing = sums_[end].seconds - sums_[begin].seconds;
    const double averaging =
        replicas > 1 ? 2 * (replicas - 1) * weights / problem_.bytes_per_second : 0;
    const double in_flight = (from_here + replicas - 1) / replicas;
    const double versions = problem_.stash_weights ? in_flight : 1;
    return {begin, end, replicas, std::max(computing, averaging) / replicas,
            weights * (versions + problem_.states_per_weight) + kept * in_flight};
  }

  bool fits(const PipelineStage& stage) const {
    return problem_.memory_bytes <= 0 || stage.memory_bytes <= problem_.memory_bytes;
  }

 private:
  const PipelineProblem& problem_;
  std::vector<PipelineLayer> sums_{PipelineLayer{}};
};

double transfer(const PipelineProblem& problem, std::size_t end) {
  if (end == problem.layers.size()) return 0;
  return 2 * problem.layers[end - 1].output_bytes / problem.bytes_per_second;
}

/// best[layer][devices]: for the layers from there on, on exactly that many devices.
using Table = std::vector<std::vector<Choice>>;

/// The cost that the placement minimizes.
struct Aim {
  /// All placements not slower are equal; of those, the one with the fewest stages is taken.
  double enough = 0;
  /// Transfers that take no longer count as nothing, longer ones are excluded. 0: all count.
  double free_transfers = 0;
};

Choice best_from(const PipelineProblem& problem, const Sums& sums, const Table& table,
                 std::size_t begin, int devices, const Aim& aim) {
  Choice best;
  const std::size_t layers = problem.layers.size();
  const int max_replicas = problem.replicate ? devices : 1;
  for (std::size_t end = begin + 1; end <= layers; ++end) {
    for (int replicas = 1; replicas <= max_replicas; ++replicas) {
      const int left = devices - replicas;
      if ((left == 0) != (end == layers)) continue;
      const Choice rest = end == layers ? Choice{0} : table[end][static_cast<std::size_t>(left)];
      const PipelineStage stage = sums.stage(begin, end, replicas, devices);
      double transfers = transfer(problem, end);
      if (aim.free_transfers > 0) transfers = transfers > aim.free_transfers ? kNever : 0;
      const double slowest = std::max({aim.enough, stage.seconds, transfers, rest.slowest});
      const bool better =
          slowest < best.slowest || (slowest == best.slowest && rest.stages + 1 < best.stages);
      if (slowest < kNever && better && sums.fits(stage))
        best = {slowest, rest.stages + 1, end, replicas};
    }
  }
  return best;
}

Table fill(const PipelineProblem& problem, const Sums& sums, const Aim& aim) {
  const auto columns = static_cast<std::size_t>(problem.devices) + 1;
  Table table(problem.layers.size() + 1, std::vector<Choice>(columns));
  for (std::size_t begin = problem.layers.size(); begin-- > 0;) {
    for (int devices = 1; devices <= problem.devices; ++devices)
      table[begin][static_cast<std::size_t>(devices)] =
          best_from(problem, sums, table, begin, devices, aim);
  }
  return table;
}

/// Orders by slowest part, then by stages.
std::vector<Choice>::const_iterator best_of(const PipelineProblem& problem,
                                            const std::vector<Choice>& choices) {
  if (problem.use_all) return choices.end() - 1;
  return std::ranges::min_element(
      choices, {}, [](const Choice& choice) { return std::pair(choice.slowest, choice.stages); });
}

}  // namespace

PipelineStage pipeline_stage(const PipelineProblem& problem, std::size_t begin, std::size_t end,
                             int replicas, int from_here) {
  return Sums(problem).stage(begin, end, replicas, from_here);
}

std::optional<PipelinePlacement> place_pipeline(const PipelineProblem& problem) {
  const std::size_t layers = problem.layers.size();
  const Sums sums(problem);
  if (layers == 0) return std::nullopt;
  const double slowest = best_of(problem, fill(problem, sums, {})[0])->slowest;
  if (slowest == kNever) return std::nullopt;
  // Second pass: parts that need not be faster than that may be larger, so stages are fewer. If all
  // devices are used anyway, stages are as equal as they can be beside the slowest transfer.
  const bool balances = problem.use_all && !problem.replicate && slowest > 0;
  const Table table =
      fill(problem, sums, balances ? Aim{.free_transfers = slowest} : Aim{.enough = slowest});
  const auto best = best_of(problem, table[0]);
  PipelinePlacement placement{{}, slowest};
  auto devices = static_cast<int>(best - table[0].begin());
  for (std::size_t begin = 0; begin < layers;) {
    const Choice& next = table[begin][static_cast<std::size_t>(devices)];
    placement.stages.push_back(sums.stage(begin, next.end, next.replicas, devices));
    begin = next.end;
    devices -= next.replicas;
  }
  return placement;
}

double pipeline_seconds(const PipelineProblem& problem, const PipelinePlacement& placement,
                        int micro_batches) {
  double first = 0;
  for (const PipelineStage& stage : placement.stages)
    first += stage.seconds * stage.replicas + transfer(problem, stage.end);
  return first + (micro_batches - 1) * placement.bottleneck;
}

}  // namespace gradwire::plan
