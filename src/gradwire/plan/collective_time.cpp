#include "gradwire/plan/collective_time.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "gradwire/plan/names.h"

namespace gradwire {
namespace {

/// Larger messages of many concurrent senders overflow a switch port's queue (incast).
constexpr double kMaxConcurrentBytes = 64 << 10;
/// This many concurrent senders do not overflow it.
constexpr double kMaxSafeSenders = 3;

struct AlphaBetaInput {
  double nodes;
  double log;    ///< log2 of nodes, rounded up.
  double hop;    ///< Seconds: latency and a message's CPU time at both ends.
  double each;   ///< Seconds: a message's CPU time.
  double data;   ///< Seconds for all bytes over a node's cards: T'.
  double cross;  ///< Oversubscription between halves of the nodes, at least 1.
};

struct AlphaBetaTerms {
  std::string_view name;
  double (*hops)(const AlphaBetaInput&);    ///< Seconds.
  double (*volume)(const AlphaBetaInput&);  ///< Bytes through each port, in units of the data.
  bool neighbors;                           ///< Messages only between neighbors.
};

double optimal(const AlphaBetaInput& p) {
  return 2 * (p.nodes - 1) / p.nodes;
}

bool power_of_two(double number) {
  return std::exp2(std::round(std::log2(number))) == number;
}

double halving_volume(const AlphaBetaInput& p) {
  return power_of_two(p.nodes) ? optimal(p) : std::min(3.0, 2 + 6 / p.nodes);
}

double tree_volume(const AlphaBetaInput& p) {
  return p.nodes <= 3 ? 2 : p.nodes <= 4 ? 2.3 : 3.7;
}

double double_tree_volume(const AlphaBetaInput& p) {
  return p.nodes <= 3 ? optimal(p) + 0.2 : 2.05;
}

constexpr std::array<AlphaBetaTerms, 7> kAlphaBetaTerms{{
    {"ring", [](const AlphaBetaInput& p) { return 2 * (p.nodes - 1) * p.hop; }, optimal, true},
    {"halving_doubling", [](const AlphaBetaInput& p) { return 2 * p.log * p.hop; }, halving_volume,
     false},
    {"double_tree", [](const AlphaBetaInput& p) { return 2 * p.log * p.hop; }, double_tree_volume,
     false},
    {"recursive_doubling", [](const AlphaBetaInput& p) { return p.log * p.hop; },
     [](const AlphaBetaInput& p) { return p.log; }, false},
    {"tree", [](const AlphaBetaInput& p) { return 2 * p.log * p.hop; }, tree_volume, false},
    {"direct", [](const AlphaBetaInput& p) { return 2 * (p.hop + (p.nodes - 2) * p.each); },
     optimal, false},
    {"star", [](const AlphaBetaInput& p) { return 2 * (p.hop + (p.nodes - 2) * p.each); },
     [](const AlphaBetaInput& p) { return p.nodes - 1; }, false},
}};

AlphaBetaInput alpha_beta_input(int nodes, double bytes, const Network& network) {
  return {.nodes = static_cast<double>(nodes),
          .log = std::ceil(std::log2(nodes)),
          .hop = network.latency + network.per_message,
          .each = network.per_message,
          .data = bytes / network.goodput(),
          .cross = std::max(1.0, network.oversubscription)};
}

CollectiveTime time_of(const AlphaBetaTerms& terms, const AlphaBetaInput& p, double bytes) {
  const double volume = terms.volume(p);
  const double slower = terms.neighbors ? 1 : std::max(1.0, p.cross / 2);
  return {.bandwidth = volume * p.data * slower,
          .latency = terms.hops(p),
          .sent = volume * bytes,
          .algorithm = std::string(terms.name)};
}

/// Returns true if `gradwire probe` measured ports of different rates, and all hosts take part.
bool unequal(const Network& network, int nodes) {
  if (!network.measured || network.measured->hosts() != nodes) return false;
  double most = 0;
  for (int host = 0; host < nodes; ++host)
    most = std::max(most, network.measured->host(host).port().bytes_per_second);
  return most > 1.05 * network.bytes_per_second;
}

CollectiveTime uneven_time(const AlphaBetaInput& p, double bytes, const Network& network) {
  double all = 0;
  for (int host = 0; host < network.measured->hosts(); ++host)
    all += network.measured->host(host).port().bytes_per_second * network.goodput_share;
  return {.bandwidth = std::max(p.data, 2 * (p.nodes - 1) * bytes / all),
          .latency = 2 * (p.hop + (p.nodes - 2) * p.each),
          .sent = optimal(p) * bytes,
          .algorithm = "spanning_trees"};
}

bool may_choose(const AlphaBetaTerms& terms, const AlphaBetaInput& p, double bytes) {
  if (terms.name != "direct" && terms.name != "star") return true;
  return p.nodes <= 1 + kMaxSafeSenders || bytes / p.nodes <= kMaxConcurrentBytes;
}

/// Returns one of two equal halves.
CollectiveTime half_of(CollectiveTime time) {
  time.bandwidth /= 2;
  time.latency /= 2;
  time.sent /= 2;
  return time;
}

}  // namespace

std::vector<std::string_view> planned_algorithms() {
  std::vector<std::string_view> names = names_of(kAlphaBetaTerms);
  names.insert(names.begin(), "auto");
  return names;
}

CollectiveTime all_reduce_time(std::string_view algorithm, int nodes, double bytes,
                               const Network& network) {
  if (nodes < 2 || bytes <= 0) return {.algorithm = "none"};
  const AlphaBetaInput p = alpha_beta_input(nodes, bytes, network);
  if (algorithm != "auto") {
    const AlphaBetaTerms* const terms = find_named(kAlphaBetaTerms, algorithm);
    if (terms == nullptr) refuse_name("algorithm", algorithm, planned_algorithms());
    return time_of(*terms, p, bytes);
  }
  if (unequal(network, nodes)) return uneven_time(p, bytes, network);
  CollectiveTime best = time_of(kAlphaBetaTerms.front(), p, bytes);
  for (const AlphaBetaTerms& terms : kAlphaBetaTerms) {
    const CollectiveTime time = time_of(terms, p, bytes);
    // Prefer a ring, which loads switches least, to gains below 1 %.
    if (may_choose(terms, p, bytes) && time.total() < 0.99 * best.total()) best = time;
  }
  return best;
}

CollectiveTime reduce_scatter_time(int nodes, double bytes, const Network& network) {
  return half_of(all_reduce_time("auto", nodes, bytes, network));
}

CollectiveTime coded_time(int nodes, double contribution, double mean, const Network& network) {
  if (nodes < 2) return {.algorithm = "none"};
  const double both = (contribution + mean) / 2;
  return time_of(*find_named(kAlphaBetaTerms, "direct"), alpha_beta_input(nodes, both, network),
                 both);
}

CollectiveTime coded_reduction_time(int nodes, double contribution, const Network& network) {
  return half_of(coded_time(nodes, contribution, contribution, network));
}

CollectiveTime server_time(int workers, int servers, double bytes, const Network& network) {
  const AlphaBetaInput p = alpha_beta_input(workers, bytes, network);
  const double busiest = std::max(1.0, p.nodes / servers);
  return {.bandwidth = 2 * busiest * p.data,
          .latency = 2 * (p.hop + std::max(0.0, p.nodes - 1) * p.each),
          .sent = 2 * bytes,
          .algorithm = "parameter_server"};
}

}  // namespace gradwire
