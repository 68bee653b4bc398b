#include "gradwire/schedule/algorithms/tree_packing.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <utility>

namespace gradwire::schedule {
namespace {

/// Numbers of trees to try.
constexpr std::array kTreeCounts{1, 2, 3, 4, 6, 8};

/// How often each tree is removed and rebuilt, given the load of the others.
constexpr int kRounds = 3;

/// Minimum relative time that more trees must save.
constexpr double kWorthIt = 0.02;

double to_the_eighth(double x) {
  const double square = x * x;
  return square * square * square * square;
}

/// Load of the trees on ports and wires: parts of the data, in each direction.
class Loads {
 public:
  explicit Loads(const topology::Topology& topology)
      : hosts_(topology.hosts()),
        ports_(static_cast<std::size_t>(hosts_)),
        wires_(static_cast<std::size_t>(hosts_) * static_cast<std::size_t>(hosts_)) {
    for (int host = 0; host < hosts_; ++host) {
      at(host).rate = topology.host(host).port().bytes_per_second;
      for (int other = 0; other < hosts_; ++other) {
        const auto there = topology.measured(host, other);
        const auto back = topology.measured(other, host);
        if (!there && !back) continue;
        at(host, other).rate = std::min(there.value_or(*back).bytes_per_second,
                                        back.value_or(*there).bytes_per_second);
        measured_ = true;
      }
    }
  }

  bool measured() const { return measured_; }

  void add(const HostTree& tree, double parts) {
    for (int host : tree.order) {
      const int parent = tree.parent[static_cast<std::size_t>(host)];
      if (parent >= 0) add_edge(parent, host, parts);
    }
  }

  void add_edge(int a, int b, double parts) {
    at(a).load += parts;
    at(b).load += parts;
    at(a, b).load += parts;
    at(b, a).load += parts;
  }

  double longest() const {
    double longest = 0;
    for (const Resource& port : ports_) longest = std::max(longest, port.time());
    for (const Resource& wire : wires_) longest = std::max(longest, wire.time());
    return longest;
  }

  /// 8-norm of all times: the longest time, and to a small extent all others. Among packings with
  /// the same longest time, the one that leaves more capacity is better.
  double cost() const {
    const double max_time = longest();
    double sum = 0;
    for (const Resource& port : ports_) sum += to_the_eighth(port.time() / max_time);
    for (const Resource& wire : wires_) sum += to_the_eighth(wire.time() / max_time);
    return max_time * std::sqrt(std::sqrt(std::sqrt(sum)));
  }

  /// Price of one more edge at a host, and on the wire between two hosts. Steep, so that sums of
  /// prices rank edges nearly like the longest time that they would cause.
  double price(int host) const { return at(host).price(); }
  double price(int a, int b) const { return at(a, b).price(); }

 private:
  struct Resource {
    double rate = 0;  ///< 0: unlimited.
    double load = 0;

    double time() const { return rate > 0 ? load / rate : 0; }
    double price() const { return rate > 0 ? to_the_eighth((load + 1) / rate) : 0; }
  };

  Resource& at(int host) { return ports_[static_cast<std::size_t>(host)]; }
  const Resource& at(int host) const { return ports_[static_cast<std::size_t>(host)]; }
  Resource& at(int a, int b) { return wires_[static_cast<std::size_t>(a * hosts_ + b)]; }
  const Resource& at(int a, int b) const {
    return wires_[static_cast<std::size_t>(a * hosts_ + b)];
  }

  int hosts_;
  bool measured_ = false;
  std::vector<Resource> ports_;
  std::vector<Resource> wires_;
};

/// Grows a tree from the cheapest host, always by the cheapest edge, whose load it adds to `loads`.
/// Among hosts of equal price, the one nearest to the root gets the next child.
class Growth {
 public:
  Growth(Loads& loads, int hosts)
      : loads_(loads),
        tree_{std::vector<int>(static_cast<std::size_t>(hosts), -1), {}},
        level_(static_cast<std::size_t>(hosts), -1) {
    for (int host = 0; host < hosts; ++host) waiting_.push_back(host);
  }

  HostTree run() {
    take(std::ranges::min_element(waiting_, {}, [&](int host) { return loads_.price(host); }), -1);
    while (!waiting_.empty()) {
      const auto [inside, next] = loads_.measured() ? cheapest_edge() : cheapest_ends();
      loads_.add_edge(inside, *next, 1);
      take(next, inside);
    }
    return std::move(tree_);
  }

 private:
  using Next = std::vector<int>::iterator;

  void take(Next next, int parent) {
    const auto host = static_cast<std::size_t>(*next);
    tree_.parent[host] = parent;
    level_[host] = parent < 0 ? 0 : level_of(parent) + 1;
    tree_.order.push_back(*next);
    waiting_.erase(next);
  }

  int level_of(int host) const { return level_[static_cast<std::size_t>(host)]; }

  std::pair<double, int> rank_inside(int host) const {
    return {loads_.price(host), level_of(host)};
  }

  /// Where only ports limit, the two ends are chosen independently.
  std::pair<int, Next> cheapest_ends() {
    const int inside = std::ranges::min(tree_.order, {}, [&](int h) { return rank_inside(h); });
    return {inside, std::ranges::min_element(waiting_, {}, [&](int h) { return loads_.price(h); })};
  }

  std::pair<int, Next> cheapest_edge() {
    std::pair<int, Next> best{tree_.order.front(), waiting_.begin()};
    std::pair<double, int> best_rank{-1, 0};
    for (Next next = waiting_.begin(); next != waiting_.end(); ++next) {
      for (int inside : tree_.order) {
        const double price = loads_.price(inside) + loads_.price(*next) +
                             loads_.price(inside, *next) + loads_.price(*next, inside);
        const std::pair rank{price, level_of(inside)};
        if (best_rank.first >= 0 && rank >= best_rank) continue;
        best_rank = rank;
        best = {inside, next};
      }
    }
    return best;
  }

  Loads& loads_;
  HostTree tree_;
  std::vector<int> level_;
  std::vector<int> waiting_;
};

std::vector<HostTree> pack(const topology::Topology& topology, int count) {
  Loads loads(topology);
  std::vector<HostTree> trees;
  for (int i = 0; i < count; ++i) trees.push_back(Growth(loads, topology.hosts()).run());
  for (int round = 0; round < kRounds; ++round) {
    for (HostTree& tree : trees) {
      const double before = loads.cost();
      Loads others = loads;
      others.add(tree, -1);
      HostTree instead = Growth(others, topology.hosts()).run();
      if (others.cost() > before) continue;
      tree = std::move(instead);
      loads = others;
    }
  }
  return trees;
}

Loads loads_of(const topology::Topology& topology, const std::vector<HostTree>& trees) {
  Loads loads(topology);
  for (const HostTree& tree : trees) loads.add(tree, 1 / static_cast<double>(trees.size()));
  return loads;
}

}  // namespace

double time_of_trees(const topology::Topology& topology, const std::vector<HostTree>& trees) {
  return loads_of(topology, trees).longest();
}

std::vector<HostTree> pack_trees(const topology::Topology& topology) {
  if (topology.hosts() == 1) return {{{-1}, {0}}};
  std::vector<HostTree> best;
  double best_cost = 0;
  for (int count : kTreeCounts) {
    std::vector<HostTree> trees = pack(topology, count);
    const double cost = loads_of(topology, trees).cost();
    if (!best.empty() && cost >= (1 - kWorthIt) * best_cost) continue;
    best = std::move(trees);
    best_cost = cost;
  }
  return best;
}

}  // namespace gradwire::schedule
