#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "gradwire/federated/fairness.h"
#include "gradwire/federated/partial.h"
#include "gradwire/federated/round.h"
#include "gradwire/federated/simulated_clients.h"

namespace gradwire::federated {

/// The local work of a round, and what it sends.
struct SimulatedWork {
  int epochs = 1;
  Partial partial = Partial::count;
  double model_bytes = 0;  ///< Sent to each client that is asked.
  /// Bytes that each of the cohort uploads, if it is another number than the round's shape has.
  std::function<double(int bits)> update_bytes;
  double server_rate = 0;  ///< Bytes per second, each direction; 0: unlimited.
};

/// A client of the cohort, whose update is awaited.
struct AwaitedUpdate {
  ClientId client = 0;
  Order::Upload upload;
  double epochs = 1;  ///< It had time for so many; a part of one may be at the end.
};

/// Computes the updates of a simulated round.
class UpdateSource {
 public:
  virtual ~UpdateSource() = default;
  /// The cohort's updates will be asked for in this order.
  virtual void begin(std::span<const AwaitedUpdate> awaited) = 0;
  /// The next one.
  virtual Contribution next() = 0;
};

/// The updates of a simulation without vectors.
class NoUpdates final : public UpdateSource {
 public:
  void begin(std::span<const AwaitedUpdate> awaited) override;
  Contribution next() override;

 private:
  std::vector<Order::Upload> uploads_;
  std::size_t given_ = 0;
};

/// The SigningKeys of simulated clients.
std::optional<PublicKey> simulated_enrolled_key(ClientId client);

/// Drives a round with simulated clients in virtual time, from `begin` to its end. Clients that
/// check in do so at once. In secure aggregation they send real messages. Only updates that arrive
/// are computed: the work of others is arithmetic.
/// `records`, one for each client, are added to.
void simulate_round(Round& round, const SimulatedClients& clients, const SimulatedWork& work,
                    UpdateSource& updates, std::span<ClientRecord> records, Time begin);

}  // namespace gradwire::federated
