#pragma once

#include "gradwire/base/error.h"

namespace gradwire::federated {

/// How clients of a round mask their updates.
struct SecurePolicy {
  int neighbours = 0;  ///< Clients with which each has masks in common; even, or all others.
  int threshold = 0;   ///< Neighbours that together can give back a client's secrets.
  /// Clients do not trust the server to follow the protocol: keys are signed, and they agree on who
  /// counts before anyone is unmasked.
  bool active = false;
};

/// The smallest threshold for so many neighbours: more than half of them, so that the server cannot
/// have half of a client's neighbours give its one secret and half the other; with `active` more
/// than two thirds, so that it cannot with a third of them as accomplices (Bonawitz et al.,
/// "Practical Secure Aggregation for Privacy-Preserving Machine Learning", CCS 2017, section 6).
int least_threshold(int neighbours, bool active);

/// Largest number of neighbours: a number that a peer sends must not exhaust memory.
inline constexpr int kMostNeighbours = 4096;

/// Fails with invalid_argument if the threshold is below least_threshold() or above `neighbours`,
/// or if `neighbours` is above kMostNeighbours.
Status check(const SecurePolicy& policy);

/// Returns the number of neighbours of each client in a cohort of `clients`: `neighbours`, rounded
/// up to an even number, but at most all other clients.
int degree_among(int clients, int neighbours);

/// Fails as check() does for the policy with degree_among() neighbours. If that fails, no round of
/// such a cohort can be committed.
Status check_among(int clients, const SecurePolicy& policy);

/// Fewer clients may not add to an element of a masked update: of two, each could read the other's.
inline constexpr int kLeastContributors = 3;

/// Fails with refused if an element of an update of which a share of `keep` is sent may have fewer
/// contributors. The mask is common to all clients of a round, so that an element has as many as
/// the sum: more than the threshold, as each client demands. Clients of a whole update choose
/// their own bound (SecureDemands).
Status check_contributors(const SecurePolicy& policy, double keep);

/// Assumptions about a cohort.
struct CohortAssumptions {
  int clients = 0;
  double dropping = 0;      ///< Share of clients that vanish during secure aggregation.
  double colluding = 0.05;  ///< Share of clients that tell the server all they know.
  bool active = false;
};

/// Probabilities that follow, over the random neighbours.
struct SecureRisks {
  /// Some client has fewer neighbours left than the threshold: the round is abandoned.
  double abandoned = 1;
  /// The neighbours that collude can, with the server, unmask some client; or the clients left and
  /// honest fall into two parts without common masks, of which the server learns both sums.
  double exposed = 1;
};

/// Both are bounds: the sum over all clients. The neighbours that vanish, or collude, of a client
/// are a sample without replacement, so their numbers are hypergeometric (Bell et al., CCS 2020,
/// section 4); the tails are summed exactly, in logarithms. In a circle, clients are separated if
/// degree / 2 of them in a row are gone, twice.
SecureRisks risks_of(const SecurePolicy& policy, const CohortAssumptions& cohort);

inline constexpr double kMostAbandoned = 1e-5;
/// 2^-40; with `active` 2^-80, as a server that lies may try 2^40 rosters for one that suits it.
double most_exposed(bool active);

/// The fewest neighbours, with their least threshold, with which a round is abandoned with a
/// probability below kMostAbandoned, and a client exposed with one below most_exposed(). Fails with
/// invalid_argument if there are none; the message says for which cohorts there are.
Result<SecurePolicy> find_policy(const CohortAssumptions& cohort);

}  // namespace gradwire::federated
