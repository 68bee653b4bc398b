#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "gradwire/federated/remote/coordinator.h"

namespace gradwire::test {

inline constexpr federated::UpdateShape kSmallShape{.elements = 5, .metrics = 2};

/// The upload of a client with this number: each element is its number + 1, times the weight.
inline federated::Contribution contribution_of(federated::ClientId id, std::int64_t bits,
                                               std::int64_t weight,
                                               const federated::UpdateShape& shape = kSmallShape) {
  federated::Contribution made{federated::ModularVector(shape.elements, static_cast<int>(bits)),
                               federated::ModularVector(shape.metrics, 64)};
  for (std::size_t i = 0; i < shape.elements; ++i)
    made[0].set(i, static_cast<std::uint64_t>((id + 1) * weight));
  for (std::size_t i = 0; i < shape.metrics; ++i) made[1].set(i, 1);
  return made;
}

/// A model whose version is the number of committed rounds.
class FakeServerModel final : public federated::ServerModel {
 public:
  explicit FakeServerModel(const federated::UpdateShape& shape = kSmallShape,
                           std::size_t bytes = 100)
      : shape_(shape), model_(federated::Blob::of(std::vector<std::byte>(bytes, std::byte{7}))) {}

  struct Ended {
    federated::RoundRecord record;
    std::uint64_t element = 0;  ///< First one of the sum.
    std::int64_t weight = 0;
    std::vector<federated::ClientId> counted;
    federated::ClientLedger ledger;
  };

  /// In place of a model without tensors.
  void set_model(std::string description, std::string plan, federated::Blob model) {
    description_ = std::move(description);
    plan_ = std::move(plan);
    model_ = std::move(model);
  }

  std::string description() override { return description_; }
  Work begin(std::int64_t round) override {
    begun_ = round;
    return {version_, plan_, shape_};
  }
  Demand demand(std::int64_t samples) override {
    return {.memory_bytes = 1000, .steps = samples / 10};
  }
  Bytes bytes_for(std::int64_t held) override {
    if (held < 0 || held + 1 != version_) return {-1, model_};
    return {held, federated::Blob::of({std::byte{1}, std::byte{2}})};
  }
  void on_ended(const federated::EndedRound& round) override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !is_held_; });
    ended_.push_back({round.record, round.sum != nullptr ? (*round.sum)[0][0] : 0, round.weight,
                      round.counted, round.ledger});
    if (round.sum != nullptr) ++version_;
    changed_.notify_all();
  }
  void on_stop() override { ++stops_; }

  std::vector<Ended> ended() const {
    const std::lock_guard lock(mutex_);
    return ended_;
  }
  void wait_for_rounds(std::size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return ended_.size() >= count; });
  }
  /// While it is held, the end of a round takes long.
  void hold(bool is_held) {
    const std::lock_guard lock(mutex_);
    is_held_ = is_held;
    changed_.notify_all();
  }
  int stops() const { return stops_; }
  std::int64_t begun() const { return begun_; }

 private:
  federated::UpdateShape shape_;
  std::string description_ = "{}", plan_ = "{\"epochs\": 1}";
  federated::Blob model_;
  std::int64_t version_ = 0;
  std::int64_t begun_ = 0;
  int stops_ = 0;
  bool is_held_ = false;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Ended> ended_;
};

}  // namespace gradwire::test
