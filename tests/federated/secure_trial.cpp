#include "tests/federated/secure_trial.h"

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <utility>

#include "gradwire/base/random.h"

namespace gradwire::test {
namespace {

using federated::ClientId;
using federated::SecurePhase;

federated::Secret signing_secret(ClientId client) {
  std::array<std::byte, 32> bytes{};
  store_little_endian(bytes.data(), static_cast<std::uint32_t>(client));
  return federated::Secret(bytes);
}

federated::SigningKeys signing_keys() {
  return [](ClientId client) -> std::optional<federated::PublicKey> {
    return federated::ed25519_public(signing_secret(client)).value();
  };
}

federated::UnmaskingServerOptions server_options(const SecureTrialOptions& options) {
  federated::UnmaskingServerOptions made{.round = 9,
                                         .policy = options.policy,
                                         .cohort = {},
                                         .shapes = options.shapes,
                                         .task = options.task,
                                         .least = options.least,
                                         .signing_keys = signing_keys(),
                                         .threads = options.threads};
  for (int number = 0; number < options.clients; ++number) made.cohort.push_back(7 * number + 3);
  return made;
}

template <class Message>
Message carried(const Message& message) {
  return federated::decode<Message>(federated::encode(message)).value();
}

}  // namespace

federated::RandomBytes seeded_bytes(std::uint64_t seed) {
  return [random = std::make_shared<Random>(seed)](Bytes bytes) -> Status {
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random->next());
    return {};
  };
}

std::vector<ClientId> random_part(std::vector<ClientId> clients, std::size_t count,
                                  std::uint64_t seed) {
  Random random(seed);
  for (std::size_t left = clients.size(); left > 1; --left)
    std::swap(clients[left - 1], clients[random.below(left)]);
  clients.resize(count);
  return clients;
}

SecureTrial::SecureTrial(const SecureTrialOptions& given)
    : options(given), server(server_options(given)) {
  for (int number = 0; number < options.clients; ++number) {
    const ClientId client = id(number);
    Random random(mixed_seed({options.seed, 1, static_cast<std::uint64_t>(client)}));
    for (const auto& shape : options.shapes) {
      federated::ModularVector& segment = inputs[client].emplace_back(shape.size, shape.bits);
      for (std::size_t i = 0; i < shape.size; ++i) segment.set(i, random.next());
    }
    clients.emplace(
        client, federated::MaskingClient::join(client_options(client), histories[client]).value());
  }
}

federated::MaskingClientOptions SecureTrial::client_options(ClientId client) const {
  return {
      .self = client,
      .round = 9,
      .policy = options.policy,
      .least = {},
      .shapes = options.shapes,
      .task = options.task,
      .signing_key = signing_secret(client),
      .signing_keys = signing_keys(),
      .random = seeded_bytes(mixed_seed({options.seed, 2, static_cast<std::uint64_t>(client)}))};
}

federated::Signature SecureTrial::sign(ClientId client, ConstBytes message) const {
  return federated::ed25519_sign(signing_secret(client), message).value();
}

Status SecureTrial::send(ClientId id) {
  federated::MaskingClient& client = clients.at(id);
  const auto keep = [&](const auto& message) {
    received.push_back(federated::encode(message));
    return carried(message);
  };
  switch (server.phase()) {
    case SecurePhase::keys: {
      GRADWIRE_ASSIGN_OR_RETURN(const auto advert, client.advertise());
      return server.on_advert(id, keep(advert));
    }
    case SecurePhase::shares: {
      GRADWIRE_ASSIGN_OR_RETURN(const auto shares,
                                client.on_roster(carried(server.roster_for(id))));
      return server.on_shares(id, keep(shares));
    }
    case SecurePhase::masked: {
      GRADWIRE_RETURN_IF_ERROR(client.on_shares(carried(server.shares_for(id))));
      GRADWIRE_ASSIGN_OR_RETURN(const auto input, client.mask(inputs.at(id)));
      masked[id] = federated::decode_masked(federated::encode(input), options.shapes).value();
      return server.on_masked(id, masked[id]);
    }
    case SecurePhase::agreeing: {
      GRADWIRE_ASSIGN_OR_RETURN(const auto signature,
                                client.on_alive_list(carried(server.alive_list())));
      return server.on_signature(id, keep(signature));
    }
    case SecurePhase::unmasking: {
      GRADWIRE_ASSIGN_OR_RETURN(auto shares,
                                client.on_unmask_request(carried(server.request_for(id))));
      if (tamper) tamper(id, shares);
      return server.on_unmasking(id, keep(shares));
    }
    default:
      return {};
  }
}

Status SecureTrial::run_until(SecurePhase phase) {
  while (server.phase() < phase) {
    const std::vector<ClientId> awaited(server.awaited().begin(), server.awaited().end());
    for (const ClientId id : awaited) {
      if (options.vanishes && options.vanishes(id, server.phase())) continue;
      GRADWIRE_RETURN_IF_ERROR(send(id));
    }
    GRADWIRE_RETURN_IF_ERROR(server.close_phase());
  }
  return {};
}

std::vector<federated::ModularVector> SecureTrial::plain_sum() const {
  std::vector<federated::ModularVector> sum;
  for (const auto& shape : options.shapes) sum.emplace_back(shape.size, shape.bits);
  for (const ClientId client : server.counted())
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += inputs.at(client)[i];
  return sum;
}

}  // namespace gradwire::test
