#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "gradwire/federated/modular_vector.h"
#include "gradwire/federated/secure/neighbour_graph.h"
#include "gradwire/federated/secure/secure_messages.h"
#include "gradwire/federated/secure/secure_policy.h"

namespace gradwire::federated {

/// A client keeps this from round to round, on disk if it may restart.
struct SecureHistory {
  std::int64_t last_round = -1;
};

struct MaskingClientOptions {
  ClientId self = 0;
  std::int64_t round = 0;
  SecurePolicy policy;               ///< The server's for this round.
  SecurePolicy least;                ///< Less than that the client does not accept.
  std::vector<SegmentShape> shapes;  ///< The segments of its contribution.
  Digest task{};                     ///< digest_of_task() of the server's plan.
  Secret signing_key;                ///< With SecurePolicy::active, as the next.
  SigningKeys signing_keys;
  RandomBytes random = system_random_bytes;
};

/// A client in one round of secure aggregation (SecAgg: Bonawitz et al., "Practical Secure
/// Aggregation for Privacy-Preserving Machine Learning", CCS 2017; on a graph of neighbours,
/// SecAgg+: Bell et al., CCS 2020). It uploads
///
///     its contribution + PRG(seed) + sum over j > i of PRG(s_ij) - sum over j < i of PRG(s_ij),
///
/// where i is the client, j are neighbours, and s_ij is their common secret. The server can take
/// off PRG(seed) of those that count, and PRG(s_ij) of a j that vanished, as each client's seed and
/// masking key are shared among its neighbours. None of them gives both. Masks depend on
/// digest_of_round(): with clients that were told something else there are none that cancel.
///
/// A state machine without network. Messages of a server that does not follow the protocol fail
/// with ErrorKind::refused and reveal nothing; the state is as before. Not thread-safe.
class MaskingClient {
 public:
  /// Fails with refused if the round is not newer than the last one, or the policy is not accepted;
  /// with invalid_argument if the policy contradicts itself.
  static Result<MaskingClient> join(MaskingClientOptions options, SecureHistory& history);

  /// The first message, once.
  Result<KeyAdvert> advertise();
  Result<SealedShares> on_roster(const Roster& roster);
  Status on_shares(const ForwardedShares& forwarded);
  /// Once. Fails with invalid_argument if the contribution has other shapes.
  Result<MaskedInput> mask(std::vector<ModularVector> contribution);
  /// With SecurePolicy::active alone, and once.
  Result<AliveSignature> on_alive_list(const AliveList& list);
  /// The last message, once.
  Result<UnmaskingShares> on_unmask_request(const UnmaskRequest& request);

 private:
  enum class Stage : std::uint8_t { joined, advertised, shared, ready, masked, signing, done };
  struct Held {  ///< A neighbour's shares.
    Share seed{}, masking{};
    ~Held();
  };
  struct Neighbour {
    Secret channel;            ///< The common secret under which shares are sealed.
    Secret common;             ///< The common secret of the masks.
    std::optional<Held> held;  ///< Only with those that sent shares are there masks.
  };

  explicit MaskingClient(MaskingClientOptions options)
      : options_(std::move(options)),
        round_(digest_of_round(options_.round, options_.policy, options_.shapes, options_.task)) {}
  tl::unexpected<Error> refuse(std::string_view reason) const;
  Status expect(Stage stage, std::int64_t round, std::string_view message) const;
  Status check_members(const Roster& roster) const;
  Status check_neighbour(const Roster& roster, const Roster::Neighbour& neighbour) const;
  Result<Neighbour> meet(const Roster::Neighbour& neighbour) const;
  Result<SealedShares> share_secrets();
  Result<Held> open_shares(const ForwardedShares::From& from) const;
  Status check_request(const UnmaskRequest& request) const;
  Status check_signatures(const UnmaskRequest& request) const;
  bool has_shares_of(ClientId client) const;

  MaskingClientOptions options_;
  Digest round_;
  Stage stage_ = Stage::joined;
  Secret seed_, masking_secret_;
  std::optional<AgreementKey> channel_key_, masking_key_;
  NeighbourGraph graph_;
  std::map<ClientId, Neighbour> neighbours_;
  std::vector<ClientId> alive_;  ///< Once signed.
};

}  // namespace gradwire::federated
