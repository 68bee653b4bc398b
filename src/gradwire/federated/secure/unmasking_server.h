#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "gradwire/federated/modular_vector.h"
#include "gradwire/federated/secure/mask.h"
#include "gradwire/federated/secure/masking_client.h"
#include "gradwire/federated/secure/neighbour_graph.h"
#include "gradwire/federated/secure/secure_messages.h"
#include "gradwire/federated/secure/secure_policy.h"

namespace gradwire::federated {

enum class SecurePhase : std::uint8_t {
  keys,       ///< KeyAdverts; then each gets its Roster.
  shares,     ///< SealedShares; then each gets its ForwardedShares.
  masked,     ///< MaskedInputs; then, with SecurePolicy::active, each gets the AliveList.
  agreeing,   ///< AliveSignatures; otherwise there is no such phase.
  unmasking,  ///< UnmaskingShares, which each sends after its UnmaskRequest.
  done,       ///< There is a sum.
  abandoned,  ///< There is none, and nothing was learnt of any contribution.
};
std::string_view name_of(SecurePhase phase);

struct UnmaskingServerOptions {
  std::int64_t round = 0;
  SecurePolicy policy;
  std::vector<ClientId> cohort;
  std::vector<SegmentShape> shapes;  ///< The segments of contributions.
  Digest task{};                     ///< digest_of_task() of the plan.
  int least = 2;                     ///< With fewer contributions the round is abandoned.
  SigningKeys signing_keys;          ///< With SecurePolicy::active.
  int threads = 1;                   ///< For taking off masks; the sum does not depend on them.
};

/// The server in one round of secure aggregation (MaskingClient says how): a state machine without
/// clock and network. In each phase the caller hands over what clients send, and ends the phase
/// when awaited() is empty or its time is over: those still awaited have vanished. An error of an
/// on_...() function concerns that client alone: its message is refused, and the state is as
/// before. Memory grows with the shares, and not with the vectors: they are added as they come.
/// Not thread-safe.
class UnmaskingServer {
 public:
  /// Throws Exception(invalid_argument) for a policy that contradicts itself, or a client that is
  /// twice in the cohort.
  explicit UnmaskingServer(UnmaskingServerOptions options);

  SecurePhase phase() const { return phase_; }
  /// Clients whose messages of this phase are missing.
  const std::set<ClientId>& awaited() const { return awaited_; }

  Status on_advert(ClientId client, const KeyAdvert& advert);
  Status on_shares(ClientId client, const SealedShares& shares);
  Status on_masked(ClientId client, const MaskedInput& input);
  Status on_signature(ClientId client, const AliveSignature& signature);
  Status on_unmasking(ClientId client, const UnmaskingShares& shares);

  /// Ends the phase, also before done. Fails with aborted if the round is abandoned: a client has
  /// fewer neighbours left than the threshold, or fewer than `least` clients are left.
  Status close_phase();

  /// Messages to the clients that are awaited in this phase, at its beginning.
  Roster roster_for(ClientId client) const;
  ForwardedShares shares_for(ClientId client) const;
  AliveList alive_list() const { return {.round = options_.round, .alive = counted_}; }
  UnmaskRequest request_for(ClientId client) const;

  /// Once done: the sum of the contributions that count, and whose they are, ascending.
  const std::vector<ModularVector>& sum() const { return sum_; }
  const std::vector<ClientId>& counted() const { return counted_; }

 private:
  struct Client {
    KeyAdvert advert;
    SealedShares sealed;
    Signature signature{};
    std::vector<int> points;    ///< Points of neighbours that have sent shares of its secret.
    std::vector<Share> shares;  ///< Those.
  };

  tl::unexpected<Error> refuse(ClientId client, std::string_view reason) const;
  tl::unexpected<Error> abandon(std::string_view reason);
  Status expect(SecurePhase phase, ClientId client, std::int64_t round) const;
  /// Those that have answered in this phase.
  std::vector<ClientId> answered() const;
  void begin(SecurePhase phase, const std::vector<ClientId>& clients);
  std::vector<ClientId> neighbours_among(ClientId client,
                                         const std::vector<ClientId>& clients) const;
  Status close_keys();
  Status close_shares();
  Status close_masked();
  Status close_agreeing();
  Status unmask();
  /// Clients that vanished after they had masks in common with others.
  std::vector<ClientId> vanished() const;
  Status check_neighbours(const std::vector<ClientId>& left);
  Result<Secret> recover(ClientId client, bool counts) const;
  Result<std::vector<Mask>> masks_of(ClientId client, bool counts) const;

  UnmaskingServerOptions options_;
  Digest round_;  ///< digest_of_round().
  SecurePhase phase_ = SecurePhase::keys;
  std::vector<ClientId> present_;  ///< Those who take part in this phase, ascending.
  std::set<ClientId> awaited_;
  std::map<ClientId, Client> clients_;
  std::set<PublicKey> keys_;
  NeighbourGraph graph_;
  std::map<ClientId, std::vector<ClientId>> neighbours_;  ///< In the graph.
  std::vector<Roster::Member> members_;
  std::vector<ClientId> sharing_, counted_;  ///< With masks in common; with masked inputs.
  std::vector<ModularVector> sum_;
};

}  // namespace gradwire::federated
