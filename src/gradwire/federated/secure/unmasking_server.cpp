#include "gradwire/federated/secure/unmasking_server.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "gradwire/base/check.h"

namespace gradwire::federated {
namespace {

void throw_if_error(const Status& status) {
  if (!status) throw Exception(status.error());
}

}  // namespace

std::string_view name_of(SecurePhase phase) {
  constexpr std::string_view kNames[] = {"keys",      "shares", "masked",   "agreeing",
                                         "unmasking", "done",   "abandoned"};
  return kNames[static_cast<std::size_t>(phase)];
}

UnmaskingServer::UnmaskingServer(UnmaskingServerOptions options)
    : options_(std::move(options)),
      round_(digest_of_round(options_.round, options_.policy, options_.shapes, options_.task)) {
  throw_if_error(check(options_.policy));
  std::vector<ClientId>& cohort = options_.cohort;
  std::ranges::sort(cohort);
  if (std::ranges::adjacent_find(cohort) != cohort.end())
    throw Exception(ErrorKind::invalid_argument, "a client is in the cohort of a round twice");
  if (options_.policy.active && !options_.signing_keys)
    throw Exception(ErrorKind::invalid_argument, "active secure aggregation needs signing keys");
  for (const SegmentShape& shape : options_.shapes) sum_.emplace_back(shape.size, shape.bits);
  begin(SecurePhase::keys, cohort);
}

void UnmaskingServer::begin(SecurePhase phase, const std::vector<ClientId>& clients) {
  phase_ = phase;
  present_ = clients;
  awaited_ = {clients.begin(), clients.end()};
}

std::vector<ClientId> UnmaskingServer::answered() const {
  std::vector<ClientId> clients;
  std::ranges::set_difference(present_, awaited_, std::back_inserter(clients));
  return clients;
}

std::vector<ClientId> UnmaskingServer::neighbours_among(
    ClientId client, const std::vector<ClientId>& clients) const {
  std::vector<ClientId> found;
  std::ranges::set_intersection(neighbours_.at(client), clients, std::back_inserter(found));
  return found;
}

tl::unexpected<Error> UnmaskingServer::refuse(ClientId client, std::string_view reason) const {
  return failure(ErrorKind::refused, fmt::format("round {} refuses a message of client {}: {}",
                                                 options_.round, client, reason));
}

tl::unexpected<Error> UnmaskingServer::abandon(std::string_view reason) {
  const std::string_view during = name_of(phase_);
  begin(SecurePhase::abandoned, {});
  return failure(ErrorKind::aborted, fmt::format("round {} is abandoned in phase {}: {}",
                                                 options_.round, during, reason));
}

Status UnmaskingServer::expect(SecurePhase phase, ClientId client, std::int64_t round) const {
  if (round != options_.round) return refuse(client, fmt::format("it is of round {}", round));
  if (phase != phase_) {
    return refuse(client, fmt::format("it is of phase {} and comes in phase {}", name_of(phase),
                                      name_of(phase_)));
  }
  if (!awaited_.contains(client))
    return refuse(client, "it has sent one already, or takes no part any more");
  return {};
}

Status UnmaskingServer::on_advert(ClientId client, const KeyAdvert& advert) {
  GRADWIRE_RETURN_IF_ERROR(expect(SecurePhase::keys, client, advert.round));
  if (advert.channel == advert.masking || keys_.contains(advert.channel) ||
      keys_.contains(advert.masking))
    return refuse(client, "another client has the same key");
  if (options_.policy.active) {
    const auto signer = options_.signing_keys(client);
    const KeyDigest keys = digest_of_keys(client, advert.channel, advert.masking);
    if (!signer || !advert.signature ||
        !ed25519_verifies(*signer, signed_keys(round_, client, keys), *advert.signature))
      return refuse(client,
                    "it is not signed by the client's enrolled key, for this plan and model");
  }
  keys_.insert({advert.channel, advert.masking});
  clients_[client].advert = advert;
  awaited_.erase(client);
  return {};
}

Status UnmaskingServer::on_shares(ClientId client, const SealedShares& shares) {
  GRADWIRE_RETURN_IF_ERROR(expect(SecurePhase::shares, client, shares.round));
  if (shares.shares.size() != static_cast<std::size_t>(graph_.degree())) {
    return refuse(client, fmt::format("it has shares for {} neighbours, not for {}",
                                      shares.shares.size(), graph_.degree()));
  }
  clients_[client].sealed = shares;
  awaited_.erase(client);
  return {};
}

Status UnmaskingServer::on_masked(ClientId client, const MaskedInput& input) {
  GRADWIRE_RETURN_IF_ERROR(expect(SecurePhase::masked, client, input.round));
  if (shapes_of(input.segments) != options_.shapes)
    return refuse(client, "it has other segments than those that were asked for");
  for (std::size_t i = 0; i < sum_.size(); ++i) sum_[i] += input.segments[i];
  awaited_.erase(client);
  return {};
}

Status UnmaskingServer::on_signature(ClientId client, const AliveSignature& signature) {
  GRADWIRE_RETURN_IF_ERROR(expect(SecurePhase::agreeing, client, signature.round));
  const auto signer = options_.signing_keys(client);
  if (!signer ||
      !ed25519_verifies(*signer, signed_list(options_.round, counted_), signature.signature))
    return refuse(client, "it has signed another list than it was sent");
  clients_[client].signature = signature.signature;
  awaited_.erase(client);
  return {};
}

Status UnmaskingServer::on_unmasking(ClientId client, const UnmaskingShares& shares) {
  GRADWIRE_RETURN_IF_ERROR(expect(SecurePhase::unmasking, client, shares.round));
  UnmaskRequest request = request_for(client);
  std::vector<ClientId> owners = std::move(request.alive);
  owners.insert(owners.end(), request.dead.begin(), request.dead.end());
  if (shares.shares.size() != owners.size() ||
      !std::ranges::all_of(shares.shares, SecretSharing::is_element))
    return refuse(client, "it does not have the shares that it was asked for");
  for (std::size_t i = 0; i < owners.size(); ++i) {
    Client& owner = clients_[owners[i]];
    owner.points.push_back(graph_.point_of(client));
    owner.shares.push_back(shares.shares[i]);
  }
  awaited_.erase(client);
  return {};
}

Status UnmaskingServer::close_phase() {
  switch (phase_) {
    case SecurePhase::keys:
      return close_keys();
    case SecurePhase::shares:
      return close_shares();
    case SecurePhase::masked:
      return close_masked();
    case SecurePhase::agreeing:
      return close_agreeing();
    case SecurePhase::unmasking:
      return unmask();
    default:
      return failure(ErrorKind::invalid_argument, "the round has ended already");
  }
}

Status UnmaskingServer::close_keys() {
  const std::vector<ClientId> clients = answered();
  for (const ClientId client : clients) {
    const KeyAdvert& advert = clients_[client].advert;
    members_.push_back({client, digest_of_keys(client, advert.channel, advert.masking)});
  }
  graph_ =
      NeighbourGraph(clients, options_.policy.neighbours, graph_seed(options_.round, members_));
  for (const ClientId client : clients) neighbours_[client] = graph_.neighbours_of(client);
  SecurePolicy policy = options_.policy;
  policy.neighbours = graph_.degree();
  if (const Status status = check(policy); !status) return abandon(status.error().message);
  if (clients.size() < static_cast<std::size_t>(options_.least))
    return abandon(fmt::format("{} clients are left of {}", clients.size(), options_.least));
  begin(SecurePhase::shares, clients);
  return {};
}

/// Clients with too few neighbours are left out, and so those that then have too few.
Status UnmaskingServer::close_shares() {
  sharing_ = answered();
  const auto threshold = static_cast<std::size_t>(options_.policy.threshold);
  while (std::erase_if(sharing_, [&, before = sharing_](ClientId client) {
           return neighbours_among(client, before).size() < threshold;
         }) > 0) {
  }
  if (sharing_.size() < static_cast<std::size_t>(options_.least))
    return abandon(fmt::format("{} clients are left with as many neighbours as the threshold, {}",
                               sharing_.size(), threshold));
  begin(SecurePhase::masked, sharing_);
  return {};
}

std::vector<ClientId> UnmaskingServer::vanished() const {
  std::vector<ClientId> clients;
  std::ranges::set_difference(sharing_, counted_, std::back_inserter(clients));
  return clients;
}

Status UnmaskingServer::check_neighbours(const std::vector<ClientId>& left) {
  for (const std::vector<ClientId>& owners : {counted_, vanished()}) {
    for (const ClientId owner : owners) {
      const std::size_t count = neighbours_among(owner, left).size();
      if (count >= static_cast<std::size_t>(options_.policy.threshold)) continue;
      return abandon(fmt::format("client {} has {} neighbours left, the threshold is {}", owner,
                                 count, options_.policy.threshold));
    }
  }
  return {};
}

Status UnmaskingServer::close_masked() {
  counted_ = answered();
  for (auto& [id, client] : clients_) client.sealed.shares.clear();
  if (counted_.size() < static_cast<std::size_t>(options_.least))
    return abandon(fmt::format("{} clients are left of {}", counted_.size(), options_.least));
  GRADWIRE_RETURN_IF_ERROR(check_neighbours(counted_));
  begin(options_.policy.active ? SecurePhase::agreeing : SecurePhase::unmasking, counted_);
  return {};
}

Status UnmaskingServer::close_agreeing() {
  const std::vector<ClientId> signers = answered();
  GRADWIRE_RETURN_IF_ERROR(check_neighbours(signers));
  begin(SecurePhase::unmasking, signers);
  return {};
}

Roster UnmaskingServer::roster_for(ClientId client) const {
  Roster roster{.round = options_.round, .members = members_, .neighbours = {}};
  for (const ClientId id : neighbours_.at(client)) {
    const KeyAdvert& advert = clients_.at(id).advert;
    roster.neighbours.push_back({id, advert.channel, advert.masking, advert.signature});
  }
  return roster;
}

ForwardedShares UnmaskingServer::shares_for(ClientId client) const {
  ForwardedShares forwarded{.round = options_.round, .shares = {}};
  for (const ClientId from : neighbours_among(client, sharing_)) {
    const std::vector<ClientId>& receivers = neighbours_.at(from);
    const auto place = std::ranges::lower_bound(receivers, client) - receivers.begin();
    forwarded.shares.push_back(
        {from, clients_.at(from).sealed.shares[static_cast<std::size_t>(place)]});
  }
  return forwarded;
}

UnmaskRequest UnmaskingServer::request_for(ClientId client) const {
  UnmaskRequest request{.round = options_.round,
                        .alive = neighbours_among(client, counted_),
                        .dead = {},
                        .signatures = {}};
  std::ranges::set_difference(neighbours_among(client, sharing_), request.alive,
                              std::back_inserter(request.dead));
  if (!options_.policy.active) return request;
  for (const ClientId signer : neighbours_among(client, present_))
    request.signatures.push_back({signer, clients_.at(signer).signature});
  return request;
}

/// A false share gives a false secret, which what the client has sent of it tells. Then other
/// shares are tried: a single false one is among those left out in one of the turns.
Result<Secret> UnmaskingServer::recover(ClientId client, bool counts) const {
  const Client& owner = clients_.at(client);
  const auto threshold = static_cast<std::size_t>(options_.policy.threshold);
  const std::size_t all = owner.points.size();
  SecretSharing sharing;
  std::vector<int> points(threshold);
  std::vector<Share> shares(threshold);
  const std::size_t stride = std::max<std::size_t>(1, all - threshold);
  for (std::size_t first = 0; first < all; first += stride) {
    for (std::size_t i = 0; i < threshold; ++i) {
      points[i] = owner.points[(first + i) % all];
      shares[i] = owner.shares[(first + i) % all];
    }
    const Result<Secret> secret = sharing.join(points, shares);
    if (!secret) continue;
    if (counts && sha256(secret->bytes()) == owner.advert.seed) return secret;
    if (counts) continue;
    const Result<AgreementKey> key = AgreementKey::of(*secret);
    if (key && key->shared() == owner.advert.masking) return secret;
  }
  return failure(
      ErrorKind::refused,
      fmt::format("the shares of client {} do not give the secret that it promised", client));
}

/// The masks to add to the sum, so that those in it cancel.
Result<std::vector<Mask>> UnmaskingServer::masks_of(ClientId client, bool counts) const {
  GRADWIRE_ASSIGN_OR_RETURN(const Secret secret, recover(client, counts));
  if (counts) return std::vector<Mask>{{.secret = secret, .is_negative = true}};
  GRADWIRE_ASSIGN_OR_RETURN(const AgreementKey key, AgreementKey::of(secret));
  std::vector<Mask> masks;
  for (const ClientId neighbour : neighbours_among(client, counted_)) {
    GRADWIRE_ASSIGN_OR_RETURN(const Secret common,
                              key.agree(clients_.at(neighbour).advert.masking));
    masks.push_back({.secret = common, .is_negative = client > neighbour});
  }
  return masks;
}

Status UnmaskingServer::unmask() {
  GRADWIRE_RETURN_IF_ERROR(check_neighbours(answered()));
  const std::vector<ClientId> dead = vanished();
  std::vector<std::vector<Mask>> masks_of_each(counted_.size() + dead.size());
  Status status = on_threads(options_.threads, masks_of_each.size(), [&](std::size_t i) -> Status {
    const bool counts = i < counted_.size();
    const ClientId client = counts ? counted_[i] : dead[i - counted_.size()];
    GRADWIRE_ASSIGN_OR_RETURN(masks_of_each[i], masks_of(client, counts));
    return {};
  });
  std::vector<Mask> masks;
  for (const std::vector<Mask>& each : masks_of_each)
    masks.insert(masks.end(), each.begin(), each.end());
  if (status) status = add_masks(masks, round_, sum_, options_.threads);
  if (!status) return abandon(status.error().message);
  begin(SecurePhase::done, {});
  return {};
}

}  // namespace gradwire::federated
