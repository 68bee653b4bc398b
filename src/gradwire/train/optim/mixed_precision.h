#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace gradwire {

/// Precision of matrix products and convolutions. Parameters, their gradients and the optimizer
/// stay float32.
enum class Precision : std::uint8_t { fp32, bf16, fp16 };

inline constexpr std::array<std::string_view, 3> kPrecisionNames{"fp32", "bf16", "fp16"};

inline std::string_view name_of(Precision precision) {
  return kPrecisionNames[static_cast<std::size_t>(precision)];
}

struct LossScalerOptions {
  double scale = 65536;                 ///< Initial scale; the constant scale if fixed.
  bool fixed = false;                   ///< Keep the scale constant.
  double growth = 2;                    ///< Factor on the scale after growth_interval finite steps.
  double backoff = 0.5;                 ///< Factor after a step with non-finite gradients.
  std::int64_t growth_interval = 2000;  ///< Consecutive steps with finite gradients before growth.
  /// Number of non-finite steps at which the scale shrinks: the hysteresis-th and each one after
  /// it; earlier ones are tolerated. The count restarts when the scale grows.
  std::int64_t hysteresis = 1;
  bool consecutive_hysteresis = false;  ///< Also restart the count after every finite step.
  /// Minimum scale. Non-finite gradients at this scale are an error.
  double min_scale = 1.0 / 65536;

  bool operator==(const LossScalerOptions&) const = default;
};

/// Loss scaling: multiplies the loss so that small gradients do not underflow in fp16, up to the
/// scale that the largest gradients allow (Micikevicius et al., "Mixed precision training", ICLR
/// 2018, section 3.2). The rule and its constants are those of PyTorch's GradScaler; hysteresis and
/// the minimum scale are DeepSpeed's. Every rank sees the same averaged gradients, so all skip the
/// same steps and keep the same scale without communication.
class LossScaler {
 public:
  explicit LossScaler(const LossScalerOptions& options = {})
      : options_(options), scale_(options.scale) {}

  /// Factor to multiply the loss by and to divide the gradients by.
  double scale() const { return scale_; }
  std::int64_t skipped() const { return skipped_; }

  /// Called after each step; `finite` tells if its gradients were finite. If they were not, the
  /// caller must skip the step. Throws Exception(invalid_argument) if gradients are not finite at
  /// the minimum scale, or in 33 consecutive steps at a fixed scale (the default dynamic scale
  /// gives up after as many).
  void update(bool finite);

  /// State for checkpoints.
  struct State {
    double scale = 0;
    std::int64_t steps_since_change = 0;  ///< Or since the last skipped step.
    std::int64_t tolerated = 0;           ///< Non-finite steps tolerated by hysteresis.
  };
  State state() const { return {scale_, good_steps_, tolerated_}; }
  /// The options take precedence: a fixed scale stays, and the scale is at least the minimum.
  void load(const State& state);

 private:
  void count_good();
  void count_bad();
  [[noreturn]] void give_up() const;

  LossScalerOptions options_;
  double scale_;
  std::int64_t good_steps_ = 0;
  std::int64_t consecutive_bad_ = 0;
  std::int64_t tolerated_ = 0;
  std::int64_t skipped_ = 0;
};

}  // namespace gradwire
