#include "gradwire/federated/remote/masked_upload.h"

#include <utility>

#include "gradwire/federated/remote/certificate.h"

namespace gradwire::federated {
namespace {

template <class Kind>
Result<Question> question_of(Result<Kind> message) {
  if (!message) return tl::unexpected<Error>(message.error());
  return SecureMessage{Blob::of(encode(*message))};
}

}  // namespace

SecureDemands SecureDemands::of(bool is_required, bool active, std::optional<int> least_threshold) {
  SecureDemands made{.is_required = is_required || active || least_threshold.has_value()};
  made.least.active = active;
  if (least_threshold) made.least.neighbours = made.least.threshold = *least_threshold;
  return made;
}

Result<MaskedUpload> MaskedUpload::begin(const ClientIdentity& identity, std::int64_t round,
                                         const Digest& task, const SecurePolicy& policy,
                                         const SecureDemands& demands, Contribution contribution,
                                         SecureHistory& history) {
  auto keys = std::make_shared<Keys>();
  MaskingClientOptions options{.self = identity.id,
                               .round = round,
                               .policy = policy,
                               .least = demands.least,
                               .shapes = shapes_of(contribution),
                               .task = task,
                               .signing_key = Secret(identity.signing_key)};
  options.signing_keys = [keys](ClientId client) -> std::optional<PublicKey> {
    const auto found = keys->find(client);
    return found == keys->end() ? std::nullopt : std::optional(found->second);
  };
  GRADWIRE_ASSIGN_OR_RETURN(auto client, MaskingClient::join(std::move(options), history));
  return MaskedUpload(std::move(client), std::move(keys), identity.authority,
                      std::move(contribution));
}

Result<Question> MaskedUpload::first() {
  return question_of(client_.advertise());
}

Result<Question> MaskedUpload::after(const SecureOrder& order) {
  const ConstBytes message = order.message.bytes();
  const auto kind = message.empty() ? std::uint8_t{0} : static_cast<std::uint8_t>(message.front());
  if (kind == Roster::kKind) return after_roster(order);
  if (kind == ForwardedShares::kKind) return after_shares(message);
  if (kind == AliveList::kKind) {
    GRADWIRE_ASSIGN_OR_RETURN(const auto list, decode<AliveList>(message));
    return question_of(client_.on_alive_list(list));
  }
  GRADWIRE_ASSIGN_OR_RETURN(const auto request, decode<UnmaskRequest>(message));
  return question_of(client_.on_unmask_request(request));
}

/// A neighbour without a valid certificate is a stranger, whom the MaskingClient refuses.
Result<Question> MaskedUpload::after_roster(const SecureOrder& order) {
  GRADWIRE_ASSIGN_OR_RETURN(const auto roster, decode<Roster>(order.message.bytes()));
  std::string_view packed = order.certificates;
  for (const Roster::Neighbour& neighbour : roster.neighbours) {
    const auto certificate = take_certificate(packed);
    if (certificate && is_valid(*certificate, neighbour.client, authority_))
      (*keys_)[neighbour.client] = certificate->key;
  }
  return question_of(client_.on_roster(roster));
}

Result<Question> MaskedUpload::after_shares(ConstBytes message) {
  GRADWIRE_ASSIGN_OR_RETURN(const auto shares, decode<ForwardedShares>(message));
  GRADWIRE_RETURN_IF_ERROR(client_.on_shares(shares));
  GRADWIRE_ASSIGN_OR_RETURN(const auto input, client_.mask(std::exchange(contribution_, {})));
  return MaskedUpdate{Blob::of(encode(input))};
}

}  // namespace gradwire::federated
