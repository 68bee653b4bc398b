#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "gradwire/federated/metrics.h"
#include "gradwire/federated/simulated_round.h"
#include "gradwire/federated/update_quantizer.h"

namespace gradwire::federated {

/// The local work of one client in one round.
struct LocalWork {
  ClientId client = 0;
  std::int64_t round = 0;
  double epochs = 1;             ///< It has time for so many.
  std::span<const float> model;  ///< The global parameters.
  double proximal = 0;           ///< mu of FedProx.
  /// Whose samples, of those that the trainer has; -1: the client's.
  std::int64_t part = -1;
  /// Returns false to stop before the next step. Null: never.
  std::function<bool()> goes_on;
};

/// The outcome of local work.
struct LocalResult {
  std::span<const float> update;  ///< Change of the parameters; valid until the next call.
  std::int64_t steps = 0;
  double training_loss = 0;                 ///< Mean over the steps.
  std::int64_t evaluated = 0, correct = 0;  ///< Held-out samples, with the global parameters.
  double loss = 0;                          ///< Sum over these.
};

/// Trains clients, one after the other. A simulation has one for each thread, not for each client.
class ClientTrainer {
 public:
  virtual ~ClientTrainer() = default;
  /// The result must depend on the work alone, whatever was trained before.
  virtual LocalResult train(const LocalWork& work) = 0;
};

/// The server's decisions for all updates of a round.
struct UpdateRules {
  const UpdateQuantizer* quantizer = nullptr;
  bool normalizes = false;  ///< Divides the update by its steps (Partial::normalize).
  std::uint64_t seed = 0;   ///< The run's; decides the rounding with round and client.
  double proximal = 0;      ///< LocalWork::proximal.
};

/// A client's contribution. Fails with invalid_argument if the update is not finite.
Result<Contribution> encode(const LocalResult& result, const LocalWork& work,
                            const Order::Upload& upload, const UpdateRules& rules);

/// Updates that trainers compute, each on a thread of its own, or on the caller's if there is one.
/// Sums are the same for any number of threads. No more than two updates for each thread exist at
/// a time.
class ComputedUpdates final : public UpdateSource {
 public:
  explicit ComputedUpdates(std::vector<std::unique_ptr<ClientTrainer>> trainers);
  ~ComputedUpdates() override;
  ComputedUpdates(const ComputedUpdates&) = delete;
  ComputedUpdates& operator=(const ComputedUpdates&) = delete;

  /// Before each round. `model` and the quantizer of `rules` must outlive it.
  void set_round(std::int64_t round, std::span<const float> model, const UpdateRules& rules);

  void begin(std::span<const AwaitedUpdate> awaited) override;
  /// Throws what the trainer threw, and Exception(invalid_argument) for an update that is not
  /// finite.
  Contribution next() override;

 private:
  struct Slot {
    AwaitedUpdate awaited;
    std::optional<Contribution> contribution;
    std::exception_ptr failure;
    bool is_done = false;
  };

  void run(ClientTrainer& trainer);
  void compute(ClientTrainer& trainer, Slot& slot) const;
  void stop_computing(std::unique_lock<std::mutex>& lock);
  bool may_start() const;

  std::vector<std::unique_ptr<ClientTrainer>> trainers_;
  std::int64_t round_ = 0;
  std::span<const float> model_;
  UpdateRules rules_;

  std::mutex mutex_;  ///< For all below, and slots that are not being computed.
  std::condition_variable changed_;
  std::vector<Slot> slots_;
  std::size_t started_ = 0, given_ = 0, computing_ = 0;
  bool ends_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace gradwire::federated
