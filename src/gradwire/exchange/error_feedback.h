#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "gradwire/exchange/coded_layout.h"
#include "gradwire/exchange/exchange.h"

namespace gradwire::exchange {

/// Error-feedback residuals: the codecs' errors, to be added to the gradients of the next step.
/// "sent" is that of this rank's contributions, "mean" that of the means this rank computes as
/// their owner. Not thread-safe.
class ErrorFeedback {
 public:
  /// `owned`: the ranges of the unit whose mean this rank computes, in order. A unit that owns
  /// nothing and is not `wanted` has no memory.
  void add_unit(const UnitShape& shape, bool wanted, const std::vector<CodedRange>& owned);

  /// One value per element of the unit; empty if it has no memory.
  std::span<float> sent(std::size_t unit) { return units_[unit].sent; }

  /// The residuals of the owned ranges, contiguous.
  std::span<float> mean(std::size_t unit) { return units_[unit].mean; }

  /// Adds all residuals of a unit to its gradients, such that their mean over `ranks` ranks
  /// includes them in full, and zeros the residuals.
  void apply_residuals(std::size_t unit, std::span<float> gradients, int ranks);

  /// "PARAMETER.sent": one value per element of the parameter; "PARAMETER.mean": one per element in
  /// an owned range. Nothing for units without memory. A unit without tensors counts as one
  /// tensor: "bucket 3".
  std::vector<Exchange::State> state();

 private:
  struct Unit {
    std::vector<UnitTensor> tensors;
    std::vector<CodedRange> owned;
    std::vector<float> sent;
    std::vector<float> mean;
    std::size_t owned_before(std::size_t element) const;
  };
  std::vector<Unit> units_;
};

}  // namespace gradwire::exchange
