#include "gradwire/exchange/error_feedback.h"

#include <algorithm>

#include <fmt/format.h>

namespace gradwire::exchange {
namespace {

LentSpan lend(std::span<float> values) {
  return {values.data(), values.size(), DataType::float32, nullptr};
}

}  // namespace

void ErrorFeedback::add_unit(const UnitShape& shape, bool wanted,
                             const std::vector<CodedRange>& owned) {
  Unit& unit = units_.emplace_back();
  if (!wanted) return;
  unit.tensors = shape.tensors;
  if (unit.tensors.empty()) {
    unit.tensors.push_back({fmt::format("bucket {}", units_.size() - 1), 0, shape.count, 1});
  }
  unit.owned = owned;
  unit.sent.resize(shape.count);
  unit.mean.resize(unit.owned_before(shape.count));
}

/// Number of owned elements among the first `element` ones.
std::size_t ErrorFeedback::Unit::owned_before(std::size_t element) const {
  std::size_t sum = 0;
  for (const CodedRange& range : owned) {
    sum += std::min(std::max(element, range.begin), range.end) - range.begin;
  }
  return sum;
}

void ErrorFeedback::apply_residuals(std::size_t unit, std::span<float> gradients, int ranks) {
  Unit& residuals = units_[unit];
  if (residuals.sent.empty()) return;
  for (std::size_t i = 0; i < gradients.size(); ++i) gradients[i] += residuals.sent[i];
  std::ranges::fill(residuals.sent, 0.0f);
  const auto times = static_cast<float>(ranks);
  const float* mean = residuals.mean.data();
  for (const CodedRange& range : residuals.owned) {
    for (std::size_t i = range.begin; i < range.end; ++i) gradients[i] += times * *mean++;
  }
  std::ranges::fill(residuals.mean, 0.0f);
}

std::vector<Exchange::State> ErrorFeedback::state() {
  std::vector<Exchange::State> all;
  for (Unit& unit : units_) {
    for (const UnitTensor& tensor : unit.tensors) {
      const std::size_t count = tensor.rows * tensor.columns;
      const std::span<float> sent(unit.sent);
      all.push_back({tensor.name + ".sent", lend(sent.subspan(tensor.offset, count))});
      const std::size_t before = unit.owned_before(tensor.offset);
      const std::size_t owned = unit.owned_before(tensor.offset + count) - before;
      if (owned == 0) continue;
      all.push_back({tensor.name + ".mean", lend(std::span(unit.mean).subspan(before, owned))});
    }
  }
  return all;
}

}  // namespace gradwire::exchange
