#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gradwire/base/types.h"
#include "gradwire/exchange/compressed_exchange.h"

namespace gradwire::exchange {

/// Compares two ways to make steps, alternating: plain, coded, plain, coded, ... so that drift
/// affects both equally. The first step of each kind is not counted. Each rank has its own trial;
/// the caller averages the results over ranks, so that all decide the same.
class AutoTrial {
 public:
  /// Counts `steps` steps of each kind, at least 1.
  explicit AutoTrial(int steps) : wanted_(steps < 1 ? 1 : steps) {}

  /// Returns true if the next step is to be coded.
  bool next_is_coded() const { return taken_ % 2 == 1; }

  /// Records the duration of a step.
  void add(Duration step);

  bool complete() const { return taken_ == steps(); }

  /// Total number of steps, of both kinds, uncounted ones included.
  int steps() const { return 2 * (wanted_ + 1); }

  /// Median seconds of a step, for each kind.
  struct Result {
    double plain = 0;
    double coded = 0;
  };
  Result result() const;

 private:
  int wanted_;
  int taken_ = 0;
  std::vector<double> plain_;
  std::vector<double> coded_;
};

/// Uses the codec of `exchange` if it makes steps shorter, and no codec otherwise. It times steps
/// from one end_pass() to the next, alternating with and without the codec. A trial starts when the
/// codec's warm-up ends and again every ExchangeOptions::steps_between_trials steps. The ranks'
/// times are averaged by an all-reduce, so that all ranks make the same decision. The codec must be
/// faster by more than 1 % to be chosen, because it costs accuracy. When the codec is switched off,
/// its error-feedback residual is added to the gradients.
///
/// `codec`: its name, for describe(). The state is that of `exchange`; a resumed run repeats the
/// trial.
std::unique_ptr<Exchange> auto_exchange(std::shared_ptr<Communicator> communicator,
                                        std::unique_ptr<CompressedExchange> exchange,
                                        std::string codec, const ExchangeOptions& options);

/// Number of steps until the first decision.
int steps_until_decided(const ExchangeOptions& options);

}  // namespace gradwire::exchange
