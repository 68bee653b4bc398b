#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "gradwire/federated/secure/masking_client.h"
#include "gradwire/federated/secure/unmasking_server.h"

namespace gradwire::test {

struct SecureTrialOptions {
  int clients = 5;
  federated::SecurePolicy policy{.neighbours = 4, .threshold = 3};
  std::vector<federated::SegmentShape> shapes{{5, 16}, {2, 64}};
  std::uint64_t seed = 1;
  federated::Digest task{};
  int threads = 1;
  int least = 2;
  /// Returns true if the client sends nothing from this phase on.
  std::function<bool(federated::ClientId, federated::SecurePhase)> vanishes;
};

/// A round of secure aggregation in memory: a server and its clients, whose messages pass through
/// their encoding. All random numbers follow from the seed.
class SecureTrial {
 public:
  explicit SecureTrial(const SecureTrialOptions& options);

  /// Goes on until the phase has begun, or the round is abandoned; returns why.
  Status run_until(federated::SecurePhase phase);
  Status run() { return run_until(federated::SecurePhase::done); }
  /// One client's part of the server's phase.
  Status send(federated::ClientId client);

  federated::ClientId id(int number) const { return 7 * number + 3; }
  int number_of(federated::ClientId client) const { return (client - 3) / 7; }
  federated::MaskingClient& client(int number) { return clients.at(id(number)); }
  federated::Signature sign(federated::ClientId client, ConstBytes message) const;
  /// The sum of the inputs of the server's counted().
  std::vector<federated::ModularVector> plain_sum() const;

  SecureTrialOptions options;
  std::map<federated::ClientId, federated::SecureHistory> histories;
  std::map<federated::ClientId, federated::MaskingClient> clients;
  std::map<federated::ClientId, std::vector<federated::ModularVector>> inputs;
  federated::UnmaskingServer server;
  /// Messages that the server has received, but for masked inputs, which have a map.
  std::vector<std::vector<std::byte>> received;
  std::map<federated::ClientId, federated::MaskedInput> masked;
  /// Replaces a message that a client sends.
  std::function<void(federated::ClientId, federated::UnmaskingShares&)> tamper;

  federated::MaskingClientOptions client_options(federated::ClientId client) const;
};

/// Random bytes that repeat.
federated::RandomBytes seeded_bytes(std::uint64_t seed);

/// `count` of the clients, in random order.
std::vector<federated::ClientId> random_part(std::vector<federated::ClientId> clients,
                                             std::size_t count, std::uint64_t seed);

}  // namespace gradwire::test
