#pragma once

#include <algorithm>

namespace gradwire {

/// The heuristic by which FedProx adapts mu to the training loss: 0.1 more when the loss rises, 0.1
/// less after five rounds in which it fell (Li et al., MLSys 2020, section 5.3.2).
class AdaptiveProximal {
 public:
  explicit AdaptiveProximal(double mu = 0) : mu_(mu) {}

  double mu() const { return mu_; }

  /// The loss of a round.
  void add(double loss) {
    if (has_loss_ && loss > last_) {
      mu_ += kStep;
      falls_ = 0;
    } else if (has_loss_ && ++falls_ == kFalls) {
      mu_ = std::max(0.0, mu_ - kStep);
      falls_ = 0;
    }
    last_ = loss;
    has_loss_ = true;
  }

 private:
  static constexpr double kStep = 0.1;
  static constexpr int kFalls = 5;

  double mu_;
  double last_ = 0;
  bool has_loss_ = false;
  int falls_ = 0;
};

}  // namespace gradwire
