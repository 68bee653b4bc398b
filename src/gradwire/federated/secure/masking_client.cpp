#include "gradwire/federated/secure/masking_client.h"

#include <algorithm>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <openssl/crypto.h>

#include "gradwire/federated/secure/mask.h"

namespace gradwire::federated {
namespace {

constexpr std::size_t kShareBytes = std::tuple_size_v<Share>;

/// For shares that `from` seals for `to`: their key depends on it, and it is authenticated.
std::vector<std::byte> sealing_data(std::int64_t round, ClientId from, ClientId to) {
  std::vector<std::byte> data(16);
  store_little_endian(data.data(), static_cast<std::uint64_t>(round));
  store_little_endian(data.data() + 8, static_cast<std::uint32_t>(from));
  store_little_endian(data.data() + 12, static_cast<std::uint32_t>(to));
  return data;
}

template <class T, class Projection = std::identity>
bool ascends(const std::vector<T>& list, Projection projection = {}) {
  return std::ranges::adjacent_find(list, std::greater_equal{}, projection) == list.end();
}

bool contains(const std::vector<ClientId>& ascending, ClientId client) {
  return std::ranges::binary_search(ascending, client);
}

}  // namespace

MaskingClient::Held::~Held() {
  OPENSSL_cleanse(seed.data(), seed.size());
  OPENSSL_cleanse(masking.data(), masking.size());
}

Result<MaskingClient> MaskingClient::join(MaskingClientOptions options, SecureHistory& history) {
  GRADWIRE_RETURN_IF_ERROR(check(options.policy));
  const SecurePolicy &policy = options.policy, &least = options.least;
  const std::int64_t round = options.round;
  MaskingClient client(std::move(options));
  if (round <= history.last_round)
    return client.refuse(
        fmt::format("it is an old round: the last one was {}", history.last_round));
  if (policy.neighbours < least.neighbours || policy.threshold < least.threshold ||
      policy.active < least.active) {
    return client.refuse(
        fmt::format("{} neighbours, a threshold of {} and {} a check of the server are less than "
                    "it accepts: {}, {} and {}",
                    policy.neighbours, policy.threshold, policy.active ? "with" : "without",
                    least.neighbours, least.threshold, least.active ? "with" : "without"));
  }
  if (policy.active && !client.options_.signing_keys)
    return client.refuse("it has no signing keys, which a check of the server needs");
  history.last_round = round;
  return client;
}

tl::unexpected<Error> MaskingClient::refuse(std::string_view reason) const {
  return failure(ErrorKind::refused, fmt::format("client {} refuses round {} of secure "
                                                 "aggregation: {}",
                                                 options_.self, options_.round, reason));
}

Status MaskingClient::expect(Stage stage, std::int64_t round, std::string_view message) const {
  if (round != options_.round) return refuse(fmt::format("{} is of round {}", message, round));
  if (stage_ == stage) return {};
  return refuse(fmt::format("{} comes {}", message,
                            stage_ > stage ? "a second time, or too late" : "too early"));
}

bool MaskingClient::has_shares_of(ClientId client) const {
  const auto found = neighbours_.find(client);
  return found != neighbours_.end() && found->second.held.has_value();
}

Result<KeyAdvert> MaskingClient::advertise() {
  GRADWIRE_RETURN_IF_ERROR(expect(Stage::joined, options_.round, "the request for keys"));
  const RandomBytes& random = options_.random;
  GRADWIRE_ASSIGN_OR_RETURN(const Secret channel_secret, Secret::draw(random));
  GRADWIRE_ASSIGN_OR_RETURN(masking_secret_, Secret::draw(random));
  GRADWIRE_ASSIGN_OR_RETURN(seed_, Secret::draw(random));
  GRADWIRE_ASSIGN_OR_RETURN(channel_key_, AgreementKey::of(channel_secret));
  GRADWIRE_ASSIGN_OR_RETURN(masking_key_, AgreementKey::of(masking_secret_));
  KeyAdvert advert{.round = options_.round,
                   .channel = channel_key_->shared(),
                   .masking = masking_key_->shared(),
                   .seed = sha256(seed_.bytes()),
                   .signature = {}};
  if (options_.policy.active) {
    const KeyDigest keys = digest_of_keys(options_.self, advert.channel, advert.masking);
    GRADWIRE_ASSIGN_OR_RETURN(
        advert.signature,
        ed25519_sign(options_.signing_key, signed_keys(round_, options_.self, keys)));
  }
  stage_ = Stage::advertised;
  return advert;
}

Status MaskingClient::check_members(const Roster& roster) const {
  const std::vector<Roster::Member>& members = roster.members;
  if (!ascends(members, &Roster::Member::client))
    return refuse("the roster has a client twice, or is not in order");
  const auto self = std::ranges::lower_bound(members, options_.self, {}, &Roster::Member::client);
  if (self == members.end() || self->client != options_.self)
    return refuse("the roster lacks the client itself");
  if (self->keys != digest_of_keys(options_.self, channel_key_->shared(), masking_key_->shared()))
    return refuse("the roster has another key in place of the client's own");
  std::set<KeyDigest> keys;
  for (const Roster::Member& member : members)
    if (!keys.insert(member.keys).second) return refuse("the roster has a key twice");
  if (members.size() <= static_cast<std::size_t>(options_.policy.threshold)) {
    return refuse(
        fmt::format("the roster has {} clients; others than itself must be as many as "
                    "the threshold, {}",
                    members.size(), options_.policy.threshold));
  }
  return {};
}

Status MaskingClient::check_neighbour(const Roster& roster,
                                      const Roster::Neighbour& neighbour) const {
  const ClientId client = neighbour.client;
  const KeyDigest keys = digest_of_keys(client, neighbour.channel, neighbour.masking);
  const auto member = std::ranges::lower_bound(roster.members, client, {}, &Roster::Member::client);
  if (member->keys != keys)
    return refuse(fmt::format("the keys of client {} are others than those in the roster", client));
  if (!options_.policy.active) return {};
  const std::optional<PublicKey> signer = options_.signing_keys(client);
  if (!signer || !neighbour.signature ||
      !ed25519_verifies(*signer, signed_keys(round_, client, keys), *neighbour.signature))
    return refuse(fmt::format(
        "client {} has not signed its keys, or was told another plan or model", client));
  return {};
}

Result<MaskingClient::Neighbour> MaskingClient::meet(const Roster::Neighbour& neighbour) const {
  const auto channel = channel_key_->agree(neighbour.channel);
  const auto common = masking_key_->agree(neighbour.masking);
  if (!channel || !common)
    return refuse(fmt::format("of client {}, {}", neighbour.client,
                              (channel ? common : channel).error().message));
  return Neighbour{.channel = *channel, .common = *common, .held = {}};
}

Result<SealedShares> MaskingClient::on_roster(const Roster& roster) {
  GRADWIRE_RETURN_IF_ERROR(expect(Stage::advertised, roster.round, "the roster"));
  GRADWIRE_RETURN_IF_ERROR(check_members(roster));
  std::vector<ClientId> members, given;
  std::set<PublicKey> keys{channel_key_->shared(), masking_key_->shared()};
  for (const Roster::Member& member : roster.members) members.push_back(member.client);
  NeighbourGraph graph(members, options_.policy.neighbours,
                       graph_seed(roster.round, roster.members));
  for (const Roster::Neighbour& neighbour : roster.neighbours) {
    given.push_back(neighbour.client);
    if (!keys.insert(neighbour.channel).second || !keys.insert(neighbour.masking).second)
      return refuse(fmt::format("client {} has a key of another one", neighbour.client));
  }
  if (given != graph.neighbours_of(options_.self))
    return refuse("the roster's neighbours are not those of the graph");
  GRADWIRE_RETURN_IF_ERROR(check({.neighbours = graph.degree(),
                                  .threshold = options_.policy.threshold,
                                  .active = options_.policy.active}));
  std::map<ClientId, Neighbour> neighbours;
  for (const Roster::Neighbour& neighbour : roster.neighbours) {
    GRADWIRE_RETURN_IF_ERROR(check_neighbour(roster, neighbour));
    GRADWIRE_ASSIGN_OR_RETURN(neighbours[neighbour.client], meet(neighbour));
  }
  graph_ = std::move(graph);
  neighbours_ = std::move(neighbours);
  return share_secrets();
}

Result<SealedShares> MaskingClient::share_secrets() {
  std::vector<int> points;
  for (const auto& [client, neighbour] : neighbours_) points.push_back(graph_.point_of(client));
  SecretSharing sharing;
  const int threshold = options_.policy.threshold;
  GRADWIRE_ASSIGN_OR_RETURN(std::vector<Share> seeds,
                            sharing.split(seed_, threshold, points, options_.random));
  GRADWIRE_ASSIGN_OR_RETURN(std::vector<Share> keys,
                            sharing.split(masking_secret_, threshold, points, options_.random));
  SealedShares message{.round = options_.round, .shares = {}};
  std::array<std::byte, 2 * kShareBytes> plain;
  std::size_t i = 0;
  for (const auto& [client, neighbour] : neighbours_) {
    const std::vector<std::byte> data = sealing_data(options_.round, options_.self, client);
    GRADWIRE_ASSIGN_OR_RETURN(const Secret key, derive(neighbour.channel, data));
    std::ranges::copy(keys[i], std::ranges::copy(seeds[i], plain.begin()).out);
    GRADWIRE_ASSIGN_OR_RETURN(const auto sealed, seal(key, {}, data, plain));
    std::ranges::copy(sealed, message.shares.emplace_back().begin());
    ++i;
  }
  for (std::vector<Share>* const shares : {&seeds, &keys})
    OPENSSL_cleanse(shares->data(), shares->size() * kShareBytes);
  OPENSSL_cleanse(plain.data(), plain.size());
  stage_ = Stage::shared;
  return message;
}

Result<MaskingClient::Held> MaskingClient::open_shares(const ForwardedShares::From& from) const {
  const auto neighbour = neighbours_.find(from.client);
  if (neighbour == neighbours_.end())
    return refuse(fmt::format("client {}, whose shares come, is no neighbour", from.client));
  const std::vector<std::byte> data = sealing_data(options_.round, from.client, options_.self);
  GRADWIRE_ASSIGN_OR_RETURN(const Secret key, derive(neighbour->second.channel, data));
  auto plain = open(key, {}, data, from.share);
  if (!plain)
    return refuse(fmt::format("the shares of client {} are not what it sealed for this one: {}",
                              from.client, plain.error().message));
  Held held;
  std::copy_n(plain->begin(), kShareBytes, held.seed.begin());
  std::copy_n(plain->begin() + kShareBytes, kShareBytes, held.masking.begin());
  OPENSSL_cleanse(plain->data(), plain->size());
  return held;
}

Status MaskingClient::on_shares(const ForwardedShares& forwarded) {
  GRADWIRE_RETURN_IF_ERROR(expect(Stage::shared, forwarded.round, "the shares"));
  if (!ascends(forwarded.shares, &ForwardedShares::From::client))
    return refuse("the shares of a client come twice, or are not in order");
  if (forwarded.shares.size() < static_cast<std::size_t>(options_.policy.threshold)) {
    return refuse(fmt::format("{} neighbours have sent shares, fewer than the threshold, {}",
                              forwarded.shares.size(), options_.policy.threshold));
  }
  std::map<ClientId, Held> opened;
  for (const ForwardedShares::From& from : forwarded.shares) {
    GRADWIRE_ASSIGN_OR_RETURN(opened[from.client], open_shares(from));
  }
  for (auto& [client, held] : opened) neighbours_[client].held = held;
  stage_ = Stage::ready;
  return {};
}

Result<MaskedInput> MaskingClient::mask(std::vector<ModularVector> contribution) {
  GRADWIRE_RETURN_IF_ERROR(expect(Stage::ready, options_.round, "the contribution"));
  if (shapes_of(contribution) != options_.shapes) {
    return failure(ErrorKind::invalid_argument,
                   fmt::format("the contribution of client {} has other segments than round {}: "
                               "upload vectors of the sizes and bits that the server asks for",
                               options_.self, options_.round));
  }
  std::vector<Mask> masks{{.secret = seed_}};
  for (const auto& [client, neighbour] : neighbours_) {
    if (neighbour.held)
      masks.push_back({.secret = neighbour.common, .is_negative = client < options_.self});
  }
  GRADWIRE_RETURN_IF_ERROR(add_masks(masks, round_, contribution));
  stage_ = Stage::masked;
  return MaskedInput{.round = options_.round, .segments = std::move(contribution)};
}

Result<AliveSignature> MaskingClient::on_alive_list(const AliveList& list) {
  if (!options_.policy.active)
    return refuse("a list of clients to sign comes, without a check of the server");
  GRADWIRE_RETURN_IF_ERROR(expect(Stage::masked, list.round, "the list of clients to sign"));
  if (!ascends(list.alive)) return refuse("the list has a client twice, or is not in order");
  if (!contains(list.alive, options_.self)) return refuse("the list lacks the client itself");
  if (!std::ranges::all_of(list.alive, [&](ClientId client) { return graph_.has(client); }))
    return refuse("the list has a client that is not in the roster");
  const auto neighbours =
      std::ranges::count_if(list.alive, [&](ClientId client) { return has_shares_of(client); });
  if (neighbours < options_.policy.threshold)
    return refuse(fmt::format("the list has {} neighbours, fewer than the threshold, {}",
                              neighbours, options_.policy.threshold));
  AliveSignature answer{.round = list.round};
  GRADWIRE_ASSIGN_OR_RETURN(
      answer.signature, ed25519_sign(options_.signing_key, signed_list(list.round, list.alive)));
  alive_ = list.alive;
  stage_ = Stage::signing;
  return answer;
}

Status MaskingClient::check_request(const UnmaskRequest& request) const {
  if (!ascends(request.alive) || !ascends(request.dead))
    return refuse("the request has a client twice, or is not in order");
  for (const ClientId client : request.alive) {
    if (contains(request.dead, client))
      return refuse(fmt::format("client {} is said to be both alive and dead", client));
  }
  for (const std::vector<ClientId>* const list : {&request.alive, &request.dead}) {
    for (const ClientId client : *list) {
      if (!has_shares_of(client))
        return refuse(fmt::format("client {} is no neighbour that has sent shares", client));
    }
  }
  if (request.alive.size() < static_cast<std::size_t>(options_.policy.threshold)) {
    return refuse(fmt::format("{} neighbours are said to be alive, fewer than the threshold, {}",
                              request.alive.size(), options_.policy.threshold));
  }
  return options_.policy.active ? check_signatures(request) : Status{};
}

Status MaskingClient::check_signatures(const UnmaskRequest& request) const {
  for (const ClientId client : request.alive) {
    if (!contains(alive_, client))
      return refuse(fmt::format("client {} is alive, and not in the list that was signed", client));
  }
  for (const ClientId client : request.dead) {
    if (contains(alive_, client))
      return refuse(fmt::format("client {} is dead, and in the list that was signed", client));
  }
  if (!ascends(request.signatures, &UnmaskRequest::Signed::client))
    return refuse("a signature comes twice, or they are not in order");
  const std::vector<std::byte> list = signed_list(options_.round, alive_);
  for (const UnmaskRequest::Signed& each : request.signatures) {
    const std::optional<PublicKey> signer = options_.signing_keys(each.client);
    if (!has_shares_of(each.client) || !signer || !ed25519_verifies(*signer, list, each.signature))
      return refuse(fmt::format("client {} has not signed the same list", each.client));
  }
  if (request.signatures.size() < static_cast<std::size_t>(options_.policy.threshold))
    return refuse(fmt::format("{} neighbours have signed the list, fewer than the threshold, {}",
                              request.signatures.size(), options_.policy.threshold));
  return {};
}

Result<UnmaskingShares> MaskingClient::on_unmask_request(const UnmaskRequest& request) {
  const Stage before = options_.policy.active ? Stage::signing : Stage::masked;
  GRADWIRE_RETURN_IF_ERROR(expect(before, request.round, "the request for shares"));
  GRADWIRE_RETURN_IF_ERROR(check_request(request));
  UnmaskingShares answer{.round = request.round, .shares = {}};
  for (const ClientId client : request.alive)
    answer.shares.push_back(neighbours_[client].held->seed);
  for (const ClientId client : request.dead)
    answer.shares.push_back(neighbours_[client].held->masking);
  neighbours_.clear();
  seed_ = masking_secret_ = Secret();
  channel_key_.reset();
  masking_key_.reset();
  stage_ = Stage::done;
  return answer;
}

}  // namespace gradwire::federated
