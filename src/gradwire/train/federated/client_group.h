#pragma once

#include <optional>
#include <string>
#include <vector>

#include "gradwire/federated/remote/participant.h"
#include "gradwire/host/group.h"
#include "gradwire/train/federated/trainable_module.h"

namespace gradwire {

/// The ranks of a job that are one federated client together. Rank 0 speaks with the server and
/// tells the others what to train; all of them train each batch, divided by rank, and add up their
/// gradients. All calls but leads() and group() are collective. They throw what the group throws: a
/// lost rank ends the client on all of them.
class ClientGroup {
 public:
  explicit ClientGroup(ProcessGroup group);

  bool leads() const { return group_->getRank() == 0; }
  c10d::ProcessGroup& group() const { return *group_; }

  using Round = federated::Participant::Work;
  /// Rank 0 passes the next round, or nullopt if there are no more; others pass nothing. Returns
  /// rank 0's. `elements`: the model's.
  std::optional<Round> share(std::optional<Round> next, std::size_t elements);

  /// Returns the same count on all ranks: rank 0's.
  std::int64_t share_count(std::int64_t count);

  /// Returns what rank 0 passes.
  bool agree(bool goes_on);

  /// The module, trained on this rank's part of each batch, with the mean gradients of the whole.
  /// Running statistics of the module are each rank's own; the server gets rank 0's.
  TrainableModule divided(const TrainableModule& module);

 private:
  torch::Tensor differentiate(const TrainableModule& module, const torch::Tensor& inputs,
                              const torch::Tensor& targets);

  ProcessGroup group_;
};

}  // namespace gradwire
