#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gradwire/emulation/emulated_device.h"
#include "gradwire/exchange/exchange.h"

namespace gradwire::step {

/// A clock that advances when a thread waits.
class TestAlarm final : public emulation::Alarm {
 public:
  Time now() const override { return now_; }
  void await(Time time) override { now_ = std::max(now_, time); }

 private:
  Time now_{};
};

/// One operation, and when it started.
struct StartedOperation {
  char kind = 'a';  ///< All-reduce, reduce-scatter or gather: 'a', 'r', 'g'.
  std::size_t unit = 0;
  Time at{};
};

/// This rank's view of an ideal network with identical ranks. It carries one operation at a time,
/// highest priority first, and can be interrupted anywhere. A completed gather fills the other
/// ranks' parts with copies of this rank's own.
class IdealExchange final : public exchange::Exchange {
 public:
  IdealExchange(TestAlarm& alarm, double bytes_per_second, int ranks,
                exchange::ExchangeTraits traits = {})
      : alarm_(alarm), rate_(bytes_per_second), ranks_(ranks), traits_(traits) {}

  Work all_reduce(std::size_t unit, LentSpan data, int priority) override;
  Work reduce_scatter(std::size_t unit, LentSpan data, LentSpan shard, int priority) override;
  Work all_gather(std::size_t unit, LentConstSpan shard, LentSpan data, int priority) override;
  exchange::ExchangeTraits traits() const override { return traits_; }
  void end_pass() override;
  void end_step(exchange::StepOutcome outcome) override;
  std::string describe() const override { return "ideal"; }

  /// Gathers of this unit are reported as complete at once, although no data arrived.
  std::optional<std::size_t> forgets;

  std::vector<StartedOperation> started;
  double sent = 0;  ///< Bytes, by this rank.
  int passes = 0;   ///< Number of end_pass() calls.
  /// By end_step() call: its outcome, and the passes before.
  std::vector<std::pair<exchange::StepOutcome, int>> steps;

 private:
  using Key = std::pair<char, std::size_t>;
  struct InFlight {
    double left = 0;  ///< Seconds.
    int priority = 0;
    std::span<float> gathered;
    float value = 0;
  };
  class IdealWork;

  Work start(Key key, std::size_t count, int priority, InFlight operation);
  bool is_forgotten(Key key) const { return key.first == 'g' && forgets == key.second; }
  bool done(Key key);
  void wait(Key key);
  std::optional<Key> highest_priority() const;
  void advance();

  TestAlarm& alarm_;
  double rate_;
  int ranks_;
  exchange::ExchangeTraits traits_;
  Time last_{};
  std::map<Key, InFlight> in_flight_;
};

}  // namespace gradwire::step
