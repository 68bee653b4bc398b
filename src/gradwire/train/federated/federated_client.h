#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "gradwire/data/data_set.h"
#include "gradwire/data/partition.h"
#include "gradwire/host/group.h"
#include "gradwire/train/federated/trainable_module.h"
#include "gradwire/train/optim/optimizer_factory.h"

namespace gradwire {

/// Bounds on what a client gives; 0: none. A day is one of UTC.
struct FederatedLimits {
  double round_seconds = 0, day_seconds = 0;  ///< Compute.
  double round_up_bytes = 0, day_up_bytes = 0;
  double round_down_bytes = 0, day_down_bytes = 0;
  std::int64_t memory_bytes = 0;
};

/// Secure aggregation that a client requires. With any of the three set, the client uploads nothing
/// that the server could read.
struct SecureUploads {
  bool required = false;
  /// Least threshold t, default 2: a sum contains the updates of at least t + 1 clients.
  std::optional<int> least_threshold;
  bool active = false;  ///< The server may lie: keys and lists are signed by enrolled clients.
};

struct FederatedClientOptions {
  /// The file of `gradwire federate enrol`. Beside it, in NAME.state, the client remembers what it
  /// spent today, and the last round.
  std::filesystem::path identity;
  std::string server;    ///< HOST:PORT; empty: the identity's.
  bool plugged = false;  ///< Only while this machine is plugged in.
  std::string eligible;  ///< A shell command: only while it exits with status 0.
  FederatedLimits limits;
  SecureUploads secure;
  double give_up_seconds = 600;  ///< Longest absence of the server.
  /// The ranks of a job that are this client together, such as several hosts: all call run() with
  /// the same module and data, rank 0 speaks with the server, and each batch is divided by rank.
  /// Its timeout must be longer than the time between two rounds. Null: this process alone.
  ProcessGroup group;
  /// Makes the local optimizer that the server's plan names, given its JSON, such as
  /// {"name": "sgd", "learning_rate": 0.1, "momentum": 0}. Null: SGD alone.
  std::function<OptimizerFactory(const std::string& json)> optimizer;
};

/// A round in which the client had a part.
struct ClientRound {
  std::int64_t round = 0;
  std::int64_t steps = 0, all_steps = 0;  ///< Done, and of the plan.
  double training_loss = 0;               ///< Mean over the steps.
  Evaluated before;                       ///< The server's model on the held-out samples.
  bool counted = false;
  std::string reason;  ///< Why it did not count.
};

/// The data of one client: all of it, with a share held out for evaluation, drawn by the seed.
/// Throws Exception(invalid_argument) unless 0 <= share < 1.
HeldOut one_client(const DataSet& data, double held_out = 0.1, std::uint64_t seed = 1);

/// Takes part in federated learning, as the server (`gradwire federate serve`) plans it: trains the
/// module on its own data, and sends the change of the parameters.
///
///     gradwire::FederatedClient client({.identity = "phone-17.json", .plugged = true});
///     client.run(module, data, gradwire::one_client(data));
///
/// Work that ends early, because the window, the eligibility or a limit ends, counts, is dropped or
/// is normalised as the plan says. No connection is held while it trains. Errors: throws Exception;
/// refused if the server does not know the identity.
class FederatedClient {
 public:
  explicit FederatedClient(FederatedClientOptions options);
  ~FederatedClient();
  FederatedClient(FederatedClient&&) noexcept;
  FederatedClient& operator=(FederatedClient&&) = delete;

  /// JSON by the server: the sections "model", "data", "partition" and "seed" of its configuration.
  std::string configuration();

  /// Takes part until the server has no more rounds, or stop(). Returns how often it counted.
  /// `own`: of one client. The module's parameters and floating buffers must have the names and
  /// shapes of the server's tensors, in any order.
  std::int64_t run(const TrainableModule& module, const DataSet& data, const HeldOut& own,
                   const std::function<void(const ClientRound&)>& on_round = nullptr);

  /// Makes run() leave its round and return; from any thread.
  void stop();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace gradwire
