#include "gradwire/train/zero/sharded_gradients.h"

#include <algorithm>

#include "gradwire/memory/memory_tracker.h"

namespace gradwire {
namespace {

/// Maximum idle buffers kept for reuse.
constexpr std::size_t kMaxIdle = 4;

bool is_narrow(torch::ScalarType type) {
  return c10::elementSize(type) < 4;
}

torch::ScalarType wide(torch::ScalarType type) {
  return is_narrow(type) ? torch::kFloat32 : type;
}

}  // namespace

ShardedGradients::ShardedGradients(std::vector<FlatUnit>& units, int ranks, bool keep_all)
    : units_(units),
      ranks_(ranks),
      keep_all_(keep_all),
      buffers_(units.size()),
      sums_(units.size()),
      means_(units.size()),
      gradients_(units.size()) {
  for (std::size_t unit = 0; unit < units_.size(); ++unit) {
    const auto& members = units_[unit].members();
    for (std::size_t member = 0; member < members.size(); ++member) {
      parameters_.push_back({members[member].parameter, unit, member});
      named_.push_back({members[member].name, members[member].parameter});
    }
    if (keep_all) buffers_[unit] = new_buffer(units_[unit]);
  }
}

void ShardedGradients::begin_pass() {
  for (auto& parameter : parameters_) parameter.filled = false;
}

bool ShardedGradients::fill(std::size_t index) {
  auto& parameter = parameters_[index];
  auto place = place_of(parameter);
  auto& gradient = parameter.tensor.mutable_grad();
  const bool first = !std::exchange(parameter.filled, true);
  if (!first) {
    place.add_(gradient, scale_);
  } else if (sums_[parameter.unit].defined()) {
    put(sum_of(parameter).add_(gradient), place);
  } else {
    put(gradient, place);
  }
  gradient.reset();
  return first;
}

void ShardedGradients::accumulate(std::size_t index) {
  auto& parameter = parameters_[index];
  auto& gradient = parameter.tensor.mutable_grad();
  if (is_narrow(gradient.scalar_type())) {
    // Autograd would accumulate in 16 bits, where large sums absorb small addends.
    sum_of(parameter).add_(gradient);
    gradient.reset();
    return;
  }
  auto place = place_of(parameter);
  if (gradient.data_ptr() != place.data_ptr()) place.copy_(gradient);
  gradient = place;
}

torch::Tensor ShardedGradients::place_of(const Parameter& parameter) {
  allocate_buffer(parameter.unit);
  return units_[parameter.unit].view(buffers_[parameter.unit], parameter.member);
}

torch::Tensor ShardedGradients::sum_of(const Parameter& parameter) {
  const auto& unit = units_[parameter.unit];
  auto& sum = sums_[parameter.unit];
  if (!sum.defined()) {
    const MemoryScope memory(MemoryCategory::gradients);
    sum = torch::zeros({unit.elements()}, unit.shard().options().dtype(torch::kFloat32));
  }
  return unit.view(sum, parameter.member);
}

void ShardedGradients::put(const torch::Tensor& gradient, torch::Tensor& place) const {
  if (gradient.data_ptr() == place.data_ptr()) {
    if (scale_ != 1) place.mul_(scale_);
  } else if (scale_ != 1) {
    torch::mul_out(place, gradient, torch::scalar_tensor(scale_, gradient.options()));
  } else {
    place.copy_(gradient);
  }
}

void ShardedGradients::allocate_buffer(std::size_t unit) {
  auto& gradient = gradients_[unit];
  if (!buffers_[unit].defined()) {
    buffers_[unit] = new_buffer(units_[unit]);
  } else if (gradient.defined() && gradient.is_alias_of(buffers_[unit])) {
    // An earlier backward left this rank's part in the buffer: move it out and add it later.
    gradient = gradient.to(wide(gradient.scalar_type()), false, /*copy=*/true);
  }
}

torch::Tensor ShardedGradients::new_buffer(const FlatUnit& unit) {
  const MemoryScope memory(keep_all_ ? MemoryCategory::gradients : MemoryCategory::communication);
  const auto options = unit.shard().options();
  const auto fits = std::ranges::find_if(idle_, [&](const auto& buffer) {
    return buffer.numel() == unit.elements() && buffer.scalar_type() == unit.shard().scalar_type();
  });
  if (fits == idle_.end()) return torch::empty({unit.elements()}, options);
  auto buffer = *fits;
  idle_.erase(fits);
  return buffer;
}

void ShardedGradients::recycle(torch::Tensor buffer) {
  idle_.push_back(std::move(buffer));
  if (idle_.size() > kMaxIdle) idle_.erase(idle_.begin());
}

torch::Tensor ShardedGradients::complete(std::size_t unit) {
  allocate_buffer(unit);
  for (const auto& parameter : parameters_) {
    if (parameter.unit == unit && !parameter.filled) put_missing(parameter);
  }
  sums_[unit].reset();
  auto& buffer = buffers_[unit];
  const auto used = units_[unit].used_elements();
  buffer.narrow(0, used, buffer.numel() - used).zero_();
  return buffer;
}

std::pair<torch::Tensor, torch::Tensor> ShardedGradients::prepare_reduction(std::size_t unit) {
  const torch::Tensor buffer = complete(unit);
  const MemoryScope memory(MemoryCategory::gradients);
  means_[unit] = ranks_ == 1 ? buffer : torch::empty_like(units_[unit].shard());
  return {buffer, means_[unit]};
}

/// Gradients accumulated locally in earlier backwards count even if this one added none.
void ShardedGradients::put_missing(const Parameter& parameter) {
  auto place = place_of(parameter);
  auto& gradient = parameter.tensor.mutable_grad();
  if (sums_[parameter.unit].defined()) {
    put(sum_of(parameter), place);
  } else if (gradient.defined()) {
    put(gradient, place);
  } else {
    place.zero_();
  }
  gradient.reset();
}

void ShardedGradients::store_mean(std::size_t unit) {
  const torch::Tensor mean = std::exchange(means_[unit], {});
  auto& gradient = gradients_[unit];
  auto& buffer = buffers_[unit];
  const bool alone = mean.is_same(buffer);
  if (gradient.defined()) {
    gradient = gradient.to(wide(gradient.scalar_type())).add_(mean);
  } else if (keep_all_ && !alone) {
    gradient = units_[unit].own_part(buffer).copy_(mean);
  } else {
    gradient = mean;
  }
  if (keep_all_) return;
  auto done = std::exchange(buffer, {});
  if (!alone) recycle(std::move(done));
}

void ShardedGradients::drop() {
  for (auto& parameter : parameters_) parameter.tensor.mutable_grad().reset();
  for (std::size_t unit = 0; unit < units_.size(); ++unit) {
    sums_[unit].reset();
    gradients_[unit].reset();
  }
}

torch::Tensor ShardedGradients::make_gradient(std::size_t unit) {
  torch::Tensor& gradient = gradients_[unit];
  if (!gradient.defined()) {
    const MemoryScope memory(MemoryCategory::gradients);
    gradient = torch::zeros_like(units_[unit].shard());
  }
  return gradient;
}

std::size_t ShardedGradients::gradient_bytes() const {
  std::size_t bytes = 0;
  for (std::size_t unit = 0; unit < units_.size(); ++unit) {
    if (keep_all_) bytes += buffers_[unit].nbytes();
    if (sums_[unit].defined()) bytes += sums_[unit].nbytes();
    const auto& gradient = gradients_[unit];
    const bool inside =
        gradient.defined() && buffers_[unit].defined() && gradient.is_alias_of(buffers_[unit]);
    if (gradient.defined() && !inside) bytes += gradient.nbytes();
  }
  return bytes;
}

std::size_t ShardedGradients::buffer_bytes() const {
  std::size_t bytes = 0;
  for (const auto& buffer : idle_) bytes += buffer.nbytes();
  for (std::size_t unit = 0; unit < units_.size(); ++unit) {
    if (!keep_all_ && buffers_[unit].defined()) bytes += buffers_[unit].nbytes();
    if (means_[unit].defined() && !means_[unit].is_same(buffers_[unit])) {
      bytes += means_[unit].nbytes();
    }
  }
  return bytes;
}

}  // namespace gradwire
