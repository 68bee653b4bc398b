#pragma once

#include <cstdint>

namespace gradwire {

struct LossScalerOptions {
  double scale = 65536;                 ///< To begin with; the scale itself if it is fixed.
  bool fixed = false;                   ///< The scale stays as it is.
  double growth = 2;                    ///< Factor on the scale after ...
  double backoff = 0.5;                 ///< Factor after a step whose gradients were not finite.
  std::int64_t growth_interval = 2000;  ///< ... so many steps in a row whose gradients were finite.
  /// Of so many steps whose gradients were not finite, the last makes the scale smaller, and each
  /// that follows: one less is tolerated. The count begins anew when the scale grows.
  std::int64_t hysteresis = 1;
  bool consecutive_hysteresis = false;  ///< It begins anew after every step that is finite, too.
  double least = 1.0 / 65536;           ///< No smaller; if that does not help: an error.

  bool operator==(const LossScalerOptions&) const = default;
};

/// Loss scaling: gradients that are too small for fp16 are lifted by multiplying the loss, as far
/// as the largest allow (Micikevicius et al., "Mixed precision training", ICLR 2018, section 3.2;
/// the rule and its constants are those of PyTorch's GradScaler, hysteresis and the least scale are
/// DeepSpeed's). Every rank sees the same averaged gradients, so that all skip the same steps and
/// keep the same scale without a message.
class LossScaler {
 public:
  explicit LossScaler(const LossScalerOptions& options = {})
      : options_(options), scale_(options.scale) {}

  /// What the loss is to be multiplied with, and gradients divided by.
  double scale() const { return scale_; }
  std::int64_t skipped() const { return skipped_; }

  /// After a step: whether its gradients were finite. If not, it must not be taken. Throws
  /// Exception(invalid_argument) if they are not at the least scale, nor in 33 steps in a row with
  /// a fixed one (in as many the usual dynamic one gives up).
  void update(bool finite);

  /// For checkpoints.
  struct State {
    double scale = 0;
    std::int64_t steps_since_change = 0;  ///< Or since the last step that was skipped.
    std::int64_t tolerated = 0;           ///< Steps not finite that hysteresis has let pass.
  };
  State state() const { return {scale_, good_steps_, tolerated_}; }
  /// The options hold: a fixed scale stays, and none becomes smaller than the least.
  void load(const State& state);

 private:
  void count_good();
  void count_bad();
  [[noreturn]] void give_up() const;

  LossScalerOptions options_;
  double scale_;
  std::int64_t good_steps_ = 0;
  std::int64_t bad_in_a_row_ = 0;
  std::int64_t tolerated_ = 0;
  std::int64_t skipped_ = 0;
};

}  // namespace gradwire
