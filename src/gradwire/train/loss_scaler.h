#pragma once

#include <cstdint>

namespace gradwire {

struct LossScalerOptions {
  double scale = 65536;                 ///< To begin with.
  double growth = 2;                    ///< Factor on the scale after ...
  double backoff = 0.5;                 ///< Factor after a step whose gradients were not finite.
  std::int64_t growth_interval = 2000;  ///< ... so many steps in a row whose gradients were finite.
  double least = 1.0 / 65536;           ///< Below, something else is wrong: an error.
};

/// Dynamic loss scaling: gradients that are too small for fp16 are lifted by multiplying the loss,
/// as far as the largest allow (Micikevicius et al., "Mixed precision training", ICLR 2018, section
/// 3.2; the rule and its constants are those of PyTorch's GradScaler). Every rank sees the same
/// averaged gradients, so that all skip the same steps and keep the same scale without a message.
class LossScaler {
 public:
  explicit LossScaler(const LossScalerOptions& options = {})
      : options_(options), scale_(options.scale) {}

  /// What the loss is to be multiplied with, and gradients divided by.
  double scale() const { return scale_; }
  std::int64_t skipped() const { return skipped_; }

  /// After a step: whether its gradients were finite. If not, it must not be taken. Throws
  /// Exception(invalid_argument) if they are not at any scale.
  void update(bool finite);

  /// For checkpoints.
  struct State {
    double scale = 0;
    std::int64_t steps_since_change = 0;
  };
  State state() const { return {scale_, good_steps_}; }
  void load(const State& state);

 private:
  LossScalerOptions options_;
  double scale_;
  std::int64_t good_steps_ = 0;
  std::int64_t skipped_ = 0;
};

}  // namespace gradwire
