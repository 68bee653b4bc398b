#include "gradwire/plan/place/host_placement.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>
#include <utility>

namespace gradwire::plan {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
/// Orders whose cut is computed at most, with more than kExactHosts hosts.
constexpr int kTrials = 2000;

std::size_t index(int number) {
  return static_cast<std::size_t>(number);
}

/// The problem with prefix sums over layers.
class Costs {
 public:
  explicit Costs(const HostProblem& problem) : problem_(problem) {
    for (const PipelineLayer& layer : problem.layers) {
      seconds_.push_back(seconds_.back() + layer.seconds);
      weights_.push_back(weights_.back() + layer.weight_bytes);
      kept_.push_back(kept_.back() + layer.kept_bytes);
    }
  }

  double compute(int host, std::size_t begin, std::size_t end) const {
    return (seconds_[end] - seconds_[begin]) / problem_.hosts[index(host)].speed;
  }

  /// The time to send what the layer before `begin` returns.
  double transfer(int from, int to, std::size_t begin) const {
    const std::size_t hosts = problem_.hosts.size();
    const double rate = std::min(problem_.bytes_per_second[index(from) * hosts + index(to)],
                                 problem_.bytes_per_second[index(to) * hosts + index(from)]);
    return problem_.layers[begin - 1].output_bytes / rate;
  }

  /// Transfers of a port in each direction, per micro-batch.
  int transfers_of_a_port() const { return problem_.stages > 2 ? 2 : 1; }

  double bytes(int stage, std::size_t begin, std::size_t end) const {
    return (weights_[end] - weights_[begin]) * (1 + problem_.states_per_weight) +
           (kept_[end] - kept_[begin]) * problem_.kept[index(stage)];
  }

  bool fits(int host, int stage, std::size_t begin, std::size_t end) const {
    const double memory = problem_.hosts[index(host)].memory_bytes;
    return memory <= 0 || bytes(stage, begin, end) <= memory;
  }

  double total() const { return seconds_.back(); }

 private:
  const HostProblem& problem_;
  std::vector<double> seconds_{0}, weights_{0}, kept_{0};
};

/// The least sum of the times of stages so far, and the state before the last stage.
struct State {
  double sum = kNever;
  int host_before = -1;
  std::size_t begin = 0;  ///< First layer of the last stage.
};

/// Extends states by one stage. All stages and transfers are below `limit`.
class Extension {
 public:
  Extension(const HostProblem& problem, const Costs& costs, double limit)
      : problem_(problem), costs_(costs), limit_(limit) {}

  /// Stage number `stage` on `host`, after one on `host_before` (-1: it is the first) that ends
  /// before layer `begin`. `ends[end]` are the states in which the new stage ends there.
  void extend(double sum, int stage, int host_before, int host, std::size_t begin,
              State* ends) const {
    if (host_before >= 0) {
      const double transfer = costs_.transfer(host_before, host, begin);
      if (costs_.transfers_of_a_port() * transfer >= limit_) return;
      sum += 2 * transfer;
    }
    const std::size_t layers = problem_.layers.size();
    const bool last = stage + 1 == problem_.stages;
    const std::size_t later = index(problem_.stages - stage - 1);
    for (std::size_t end = last ? layers : begin + 1; end + later <= layers; ++end) {
      const double compute = costs_.compute(host, begin, end);
      if (compute >= limit_ || !costs_.fits(host, stage, begin, end)) return;  // Nor longer ones.
      if (sum + compute < ends[end].sum) ends[end] = {sum + compute, host_before, begin};
    }
  }

 private:
  const HostProblem& problem_;
  const Costs& costs_;
  double limit_;
};

/// Placements of all orders with the least sum: by set of used hosts, last host, and end.
class AnyOrder {
 public:
  explicit AnyOrder(const HostProblem& problem)
      : problem_(problem), hosts_(static_cast<int>(problem.hosts.size())) {}

  std::optional<HostPlacement> min_sum(const Costs& costs, double limit) {
    const std::size_t layers = problem_.layers.size();
    states_.assign((std::size_t{1} << hosts_) * index(hosts_) * (layers + 1), {});
    const Extension extension(problem_, costs, limit);
    for (int host = 0; host < hosts_; ++host)
      extension.extend(0, 0, -1, host, 0, row(1u << host, host));
    for (unsigned set = 1; set < 1u << hosts_; ++set) {
      const int stages = std::popcount(set);
      for (int host = 0; host < hosts_ && stages < problem_.stages; ++host) {
        if ((set >> host & 1) != 0) extend_all(extension, set, stages, host);
      }
    }
    return best();
  }

 private:
  State* row(unsigned set, int host) {
    return &states_[(set * index(hosts_) + index(host)) * (problem_.layers.size() + 1)];
  }

  void extend_all(const Extension& extension, unsigned set, int stages, int host) {
    const State* const states = row(set, host);
    for (std::size_t end = 1; end < problem_.layers.size(); ++end) {
      if (states[end].sum == kNever) continue;
      for (int next = 0; next < hosts_; ++next) {
        if ((set >> next & 1) != 0) continue;
        extension.extend(states[end].sum, stages, host, next, end, row(set | 1u << next, next));
      }
    }
  }

  std::optional<HostPlacement> best() {
    const std::size_t layers = problem_.layers.size();
    std::pair<unsigned, int> last{0, -1};
    double sum = kNever;
    for (unsigned set = 1; set < 1u << hosts_; ++set) {
      if (std::popcount(set) != problem_.stages) continue;
      for (int host = 0; host < hosts_; ++host) {
        if (row(set, host)[layers].sum >= sum) continue;
        sum = row(set, host)[layers].sum;
        last = {set, host};
      }
    }
    if (last.second < 0) return std::nullopt;
    std::vector<int> hosts;
    std::vector<std::size_t> cut;
    auto [set, host] = last;
    for (std::size_t end = layers; host >= 0;) {
      const State& state = row(set, host)[end];
      hosts.insert(hosts.begin(), host);
      cut.insert(cut.begin(), end - state.begin);
      set &= ~(1u << host);
      host = state.host_before;
      end = state.begin;
    }
    return placement_of(problem_, std::move(hosts), std::move(cut));
  }

  const HostProblem& problem_;
  int hosts_;
  std::vector<State> states_;
};

/// Placements of one order of hosts.
class OneOrder {
 public:
  OneOrder(const HostProblem& problem, std::vector<int> hosts)
      : problem_(problem), hosts_(std::move(hosts)) {}

  std::optional<HostPlacement> min_sum(const Costs& costs, double limit) {
    const std::size_t layers = problem_.layers.size();
    std::vector<std::vector<State>> states(hosts_.size(), std::vector<State>(layers + 1));
    const Extension extension(problem_, costs, limit);
    extension.extend(0, 0, -1, hosts_.front(), 0, states.front().data());
    for (std::size_t stage = 1; stage < hosts_.size(); ++stage) {
      for (std::size_t end = 1; end < layers; ++end) {
        const double sum = states[stage - 1][end].sum;
        if (sum == kNever) continue;
        extension.extend(sum, static_cast<int>(stage), hosts_[stage - 1], hosts_[stage], end,
                         states[stage].data());
      }
    }
    if (states.back()[layers].sum == kNever) return std::nullopt;
    std::vector<std::size_t> cut(hosts_.size());
    for (std::size_t stage = hosts_.size(), end = layers; stage-- > 0;) {
      const std::size_t begin = states[stage][end].begin;
      cut[stage] = end - begin;
      end = begin;
    }
    return placement_of(problem_, hosts_, std::move(cut));
  }

 private:
  const HostProblem& problem_;
  std::vector<int> hosts_;
};

/// Returns the placement with the least T that is less than that of `best`, else `best`.
template <class Placements>
std::optional<HostPlacement> fastest(const HostProblem& problem, const Costs& costs,
                                     Placements placements, std::optional<HostPlacement> best) {
  double limit = kNever;
  while (auto found = placements.min_sum(costs, limit)) {
    limit = found->bottleneck;
    const double first = found->first;
    if (!best || found->seconds < best->seconds) best = std::move(found);
    if (problem.micro_batches == 1) break;
    // No other placement has a smaller sum: only a smaller maximum can be faster.
    limit = std::min(limit, (best->seconds - first) / (problem.micro_batches - 1));
  }
  return best;
}

/// Improves orders of hosts. The hosts behind the first `stages` are not used.
class OrderSearch {
 public:
  OrderSearch(const HostProblem& problem, const Costs& costs) : problem_(problem), costs_(costs) {}

  std::optional<HostPlacement> run() {
    std::vector<int> hosts(problem_.hosts.size());
    std::iota(hosts.begin(), hosts.end(), 0);
    const auto speed = [&](int host) { return -problem_.hosts[index(host)].speed; };
    std::vector<int> fast_first = hosts;
    std::ranges::stable_sort(fast_first, {}, speed);
    for (std::vector<int> start : {hosts, fast_first, along_links(fast_first.front())}) {
      trials_ = 0;
      improve(std::move(start));
    }
    return std::move(best_);
  }

 private:
  /// Returns the hosts in the order of a walk that takes the fastest link to an unvisited one.
  std::vector<int> along_links(int first) const {
    std::vector<int> order{first}, left(problem_.hosts.size());
    std::iota(left.begin(), left.end(), 0);
    std::erase(left, first);
    while (!left.empty()) {
      const std::size_t row = index(order.back()) * problem_.hosts.size();
      const auto next = std::ranges::max_element(
          left, {}, [&](int host) { return problem_.bytes_per_second[row + index(host)]; });
      order.push_back(*next);
      left.erase(next);
    }
    return order;
  }

  void improve(std::vector<int> order) {
    double seconds = evaluate(order);
    for (bool better = true; better && trials_ < kTrials;) {
      better = false;
      for (const bool reverses : {false, true}) {
        for (std::size_t i = 0; i < index(problem_.stages); ++i) {
          for (std::size_t j = i + 1; j < order.size() && trials_ < kTrials; ++j) {
            std::vector<int> changed = order;
            if (reverses) {
              std::reverse(changed.begin() + static_cast<std::ptrdiff_t>(i),
                           changed.begin() + static_cast<std::ptrdiff_t>(j) + 1);
            } else {
              std::swap(changed[i], changed[j]);
            }
            const double now = evaluate(changed);
            if (now >= seconds) continue;
            seconds = now;
            order = std::move(changed);
            better = true;
          }
        }
      }
    }
  }

  double evaluate(const std::vector<int>& order) {
    ++trials_;
    const std::vector<int> used(order.begin(), order.begin() + problem_.stages);
    auto found = fastest(problem_, costs_, OneOrder(problem_, used), std::nullopt);
    if (!found) return kNever;
    const double seconds = found->seconds;
    if (!best_ || seconds < best_->seconds) best_ = std::move(found);
    return seconds;
  }

  const HostProblem& problem_;
  const Costs& costs_;
  std::optional<HostPlacement> best_;
  int trials_ = 0;
};

}  // namespace

HostPlacement placement_of(const HostProblem& problem, std::vector<int> hosts,
                           std::vector<std::size_t> cut) {
  const Costs costs(problem);
  HostPlacement placement{.hosts = std::move(hosts), .cut = std::move(cut)};
  std::size_t begin = 0;
  for (std::size_t stage = 0; stage < placement.cut.size(); ++stage) {
    const int host = placement.hosts[stage];
    if (stage > 0) {
      const double transfer = costs.transfer(placement.hosts[stage - 1], host, begin);
      placement.first += 2 * transfer;
      placement.bottleneck = std::max(placement.bottleneck, costs.transfers_of_a_port() * transfer);
    }
    const double compute = costs.compute(host, begin, begin + placement.cut[stage]);
    placement.first += compute;
    placement.bottleneck = std::max(placement.bottleneck, compute);
    begin += placement.cut[stage];
  }
  placement.seconds = placement.first + (problem.micro_batches - 1) * placement.bottleneck;
  return placement;
}

std::optional<HostPlacement> cut_for(const HostProblem& problem, const std::vector<int>& hosts) {
  return fastest(problem, Costs(problem), OneOrder(problem, hosts), std::nullopt);
}

std::optional<HostPlacement> place_on_hosts(const HostProblem& problem) {
  const Costs costs(problem);
  if (problem.hosts.size() > kExactHosts) return OrderSearch(problem, costs).run();
  std::vector<int> given(index(problem.stages));
  std::iota(given.begin(), given.end(), 0);
  return fastest(problem, costs, AnyOrder(problem), cut_for(problem, given));
}

double stage_bytes(const HostProblem& problem, int stage, std::size_t begin, std::size_t end) {
  return Costs(problem).bytes(stage, begin, end);
}

}  // namespace gradwire::plan
