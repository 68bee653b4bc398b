#include "gradwire/federated/secure/secure_policy.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

namespace gradwire::federated {
namespace {

constexpr int kMostClients = 4096;  // For which a policy is sought.

/// Logarithms of factorials.
class Logarithms {
 public:
  explicit Logarithms(int largest) : factorial_(static_cast<std::size_t>(largest) + 1) {
    for (std::size_t i = 2; i < factorial_.size(); ++i)
      factorial_[i] = factorial_[i - 1] + std::log(static_cast<double>(i));
  }

  double choices(int of, int taken) const { return at(of) - at(taken) - at(of - taken); }

  /// P(X >= least), where X counts the marked ones among `drawn` of `all`, without replacement.
  double tail(int all, int marked, int drawn, int least) const {
    double sum = 0;
    const int lowest = std::max({0, least, drawn - (all - marked)});
    for (int x = std::min(marked, drawn); x >= lowest; --x) {  // The smallest terms come first.
      sum += std::exp(choices(marked, x) + choices(all - marked, drawn - x) - choices(all, drawn));
    }
    return std::min(1.0, sum);
  }

 private:
  double at(int n) const { return factorial_[static_cast<std::size_t>(n)]; }

  std::vector<double> factorial_;
};

int part_of(double share, int clients) {
  return std::clamp(static_cast<int>(std::ceil(share * clients - 1e-9)), 0, clients);
}

SecureRisks risks(const Logarithms& logarithms, const SecurePolicy& policy,
                  const CohortAssumptions& cohort) {
  const int others = cohort.clients - 1, degree = std::min(policy.neighbours, others);
  const int dropping = std::min(part_of(cohort.dropping, cohort.clients), others);
  const int colluding = std::min(part_of(cohort.colluding, cohort.clients), others);
  // Without the check each neighbour gives one secret; with it the server may try to have both from
  // its accomplices, and one from each other neighbour.
  const int enough = policy.active ? 2 * policy.threshold - degree : policy.threshold;
  SecureRisks found;
  found.abandoned =
      cohort.clients * logarithms.tail(others, dropping, degree, degree - policy.threshold + 1);
  found.exposed = cohort.clients * logarithms.tail(others, colluding, degree, enough);
  const int gone = std::min(dropping + colluding, cohort.clients), in_a_row = degree / 2;
  if (degree < others && gone >= in_a_row) {
    found.exposed += cohort.clients * std::exp(logarithms.choices(gone, in_a_row) -
                                               logarithms.choices(cohort.clients, in_a_row));
  }
  return found;
}

std::optional<SecurePolicy> search(const CohortAssumptions& cohort) {
  const Logarithms logarithms(cohort.clients);
  const int others = cohort.clients - 1;
  for (int neighbours = 2; neighbours <= others + 1; neighbours += 2) {
    const int degree = std::min(neighbours, others);
    const SecurePolicy policy{.neighbours = degree,
                              .threshold = least_threshold(degree, cohort.active),
                              .active = cohort.active};
    if (policy.threshold > degree) continue;
    const SecureRisks found = risks(logarithms, policy, cohort);
    if (found.abandoned < kMostAbandoned && found.exposed < most_exposed(cohort.active))
      return policy;
  }
  return std::nullopt;
}

/// The smallest cohort found by doubling and bisection; with more clients the tails are thinner.
std::optional<int> large_enough(CohortAssumptions cohort) {
  int too_few = cohort.clients;
  do {
    cohort.clients = 2 * too_few;
    if (cohort.clients > kMostClients) return std::nullopt;
    if (search(cohort)) break;
    too_few = cohort.clients;
  } while (true);
  int enough = cohort.clients;
  while (enough - too_few > 1) {
    cohort.clients = (enough + too_few) / 2;
    (search(cohort) ? enough : too_few) = cohort.clients;
  }
  return enough;
}

std::optional<double> most_dropping(CohortAssumptions cohort) {
  for (int dropping = part_of(cohort.dropping, cohort.clients) - 1; dropping >= 0; --dropping) {
    cohort.dropping = static_cast<double>(dropping) / cohort.clients;
    if (search(cohort)) return cohort.dropping;
  }
  return std::nullopt;
}

std::string remedy(const CohortAssumptions& cohort) {
  std::string text;
  if (const auto dropping = most_dropping(cohort))
    text += fmt::format("; with {} clients at most {:.3f} may vanish", cohort.clients, *dropping);
  if (const auto clients = large_enough(cohort))
    text += fmt::format("; with {} vanishing, {} clients are enough", cohort.dropping, *clients);
  return text;
}

}  // namespace

int least_threshold(int neighbours, bool active) {
  return active ? 2 * neighbours / 3 + 1 : neighbours / 2 + 1;
}

Status check(const SecurePolicy& policy) {
  if (policy.neighbours > kMostNeighbours) {
    return failure(ErrorKind::invalid_argument,
                   fmt::format("a client has {} neighbours, and may have {}", policy.neighbours,
                               kMostNeighbours));
  }
  const int least = least_threshold(policy.neighbours, policy.active);
  if (policy.neighbours >= 1 && policy.threshold >= least && policy.threshold <= policy.neighbours)
    return {};
  return failure(
      ErrorKind::invalid_argument,
      fmt::format("a threshold of {} with {} neighbours: it must be {} to {}, so that no "
                  "client is unmasked",
                  policy.threshold, policy.neighbours, least, policy.neighbours));
}

int degree_among(int clients, int neighbours) {
  return std::min(std::max(0, clients - 1), neighbours + neighbours % 2);
}

Status check_among(int clients, const SecurePolicy& policy) {
  SecurePolicy seen = policy;
  seen.neighbours = degree_among(clients, policy.neighbours);
  const Status status = check(seen);
  if (status || seen.neighbours == policy.neighbours) return status;
  return failure(status.error().kind,
                 fmt::format("secure aggregation with {} neighbours is {} among {} clients: {}",
                             policy.neighbours, seen.neighbours, clients, status.error().message));
}

Status check_contributors(const SecurePolicy& policy, double keep) {
  if (keep == 1 || policy.threshold + 1 >= kLeastContributors) return {};
  return failure(
      ErrorKind::refused,
      fmt::format(
          "update.mask is {}, and with a threshold of {} an element may have {} "
          "contributors: with secure aggregation it must have {}, or a client's value could "
          "be read; set secure.threshold to {} or more, or update.mask to 1",
          keep, policy.threshold, policy.threshold + 1, kLeastContributors,
          kLeastContributors - 1));
}

double most_exposed(bool active) {
  return active ? 0x1p-80 : 0x1p-40;
}

SecureRisks risks_of(const SecurePolicy& policy, const CohortAssumptions& cohort) {
  return risks(Logarithms(cohort.clients), policy, cohort);
}

Result<SecurePolicy> find_policy(const CohortAssumptions& cohort) {
  const bool are_shares = cohort.dropping >= 0 && cohort.dropping <= 1 && cohort.colluding >= 0 &&
                          cohort.colluding <= 1;
  if (cohort.clients < 1 || cohort.clients > kMostClients || !are_shares) {
    return failure(ErrorKind::invalid_argument,
                   fmt::format("secure aggregation is for 3 to {} clients, of which shares of 0 to "
                               "1 vanish and collude, not for {} with {} and {}",
                               kMostClients, cohort.clients, cohort.dropping, cohort.colluding));
  }
  if (const auto policy = search(cohort)) return *policy;
  return failure(
      ErrorKind::invalid_argument,
      fmt::format("secure aggregation among {} clients, of which {} vanish and {} collude, would "
                  "be abandoned too often, or expose a client, with any number of neighbours{}",
                  cohort.clients, cohort.dropping, cohort.colluding, remedy(cohort)));
}

}  // namespace gradwire::federated
