#include "gradwire/train/zero/gradient_shards.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/utils/lambda_post_hook.h>

#include "gradwire/train/memory/memory_tracker.h"

namespace gradwire {
namespace {

/// Maximum units in flight if their memory is temporary.
constexpr std::size_t kMaxInFlight = 4;
/// Maximum idle buffers kept for reuse.
constexpr std::size_t kMaxIdle = 4;

bool is_narrow(torch::ScalarType type) {
  return c10::elementSize(type) < 4;
}

torch::ScalarType wide(torch::ScalarType type) {
  return is_narrow(type) ? torch::kFloat32 : type;
}

}  // namespace

GradientShards::GradientShards(std::vector<FlatUnit>& units, UnitExchange& exchange,
                               GradientShardsOptions options)
    : units_(units),
      exchange_(exchange),
      options_(std::move(options)),
      buffers_(units.size()),
      sums_(units.size()),
      means_(units.size()),
      gradients_(units.size()),
      self_(std::make_shared<GradientShards*>(this)) {
  const bool average = std::ranges::all_of(units_, [this](const auto& unit) {
    return can_average(*options_.group, unit.shard().device().type());
  });
  const int ranks = options_.group->getSize();
  scale_ = average || ranks == 1 ? 1.0 : 1.0 / ranks;
  add_hooks();
  reset();
  if (!options_.keep_all) return;
  for (std::size_t i = 0; i < units_.size(); ++i) buffers_[i] = new_buffer(units_[i]);
}

GradientShards::~GradientShards() {
  for (auto& parameter : parameters_) parameter.accumulator->del_post_hook(parameter.hook);
}

void GradientShards::add_hooks() {
  for (std::size_t unit = 0; unit < units_.size(); ++unit) {
    const auto& members = units_[unit].members();
    for (std::size_t member = 0; member < members.size(); ++member) {
      const auto& tensor = members[member].parameter;
      auto hook = [this, i = parameters_.size()](const auto& outputs, const auto&) {
        on_gradient(i);
        return outputs;
      };
      auto accumulator = torch::autograd::impl::grad_accumulator(tensor);
      const auto id = accumulator->add_post_hook(
          std::make_unique<torch::autograd::utils::LambdaPostHook>(std::move(hook)));
      parameters_.push_back(
          {tensor, members[member].name, unit, member, std::move(accumulator), id});
    }
  }
}

void GradientShards::prepare(std::vector<std::size_t> order, bool synchronize) {
  if (backward_begun_) {
    fail(ErrorKind::invalid_argument,
         "the last backward threw before its gradients were reduced; do not use this Zero any "
         "further");
  }
  order_ = std::move(order);
  accumulating_ = options_.keep_all && !synchronize;
  prepared_ = true;
}

void GradientShards::begin_backward() {
  if (!prepared_ || backward_begun_) return;
  backward_begun_ = true;
  if (options_.serialize_passes) {
    settle_all();
    exchange_.end_pass();
  }
  torch::autograd::Engine::get_default_engine().queue_callback(
      [alive = std::weak_ptr<GradientShards*>(self_)] {
        if (const auto self = alive.lock()) (*self)->end_of_backward();
      });
}

void GradientShards::on_gradient(std::size_t index) {
  const std::lock_guard lock(*options_.mutex);
  const torch::NoGradGuard no_grad;
  auto& parameter = parameters_[index];
  if (!parameter.tensor.grad().defined()) return;
  if (!prepared_) {
    fail(ErrorKind::invalid_argument,
         fmt::format("'{}' got a gradient without a preceding forward of this Zero; call its "
                     "forward, not that of the wrapped module, before each backward",
                     parameter.name));
  }
  begin_backward();
  if (parameter.tensor.grad().layout() != torch::kStrided) {
    fail(ErrorKind::unsupported,
         fmt::format("the gradient of '{}' is sparse; construct its layer with sparse = false",
                     parameter.name));
  }
  if (accumulating_) {
    accumulate_locally(parameter);
  } else {
    fill(parameter);
  }
}

torch::Tensor GradientShards::place_of(const Parameter& parameter) {
  allocate_buffer(parameter.unit);
  return units_[parameter.unit].view(buffers_[parameter.unit], parameter.member);
}

void GradientShards::accumulate_locally(Parameter& parameter) {
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

torch::Tensor GradientShards::sum_of(const Parameter& parameter) {
  const auto& unit = units_[parameter.unit];
  auto& sum = sums_[parameter.unit];
  if (!sum.defined()) {
    const MemoryScope memory(MemoryCategory::gradients);
    sum = torch::zeros({unit.elements()}, unit.shard().options().dtype(torch::kFloat32));
  }
  return unit.view(sum, parameter.member);
}

torch::Tensor GradientShards::with_sum(const Parameter& parameter, const torch::Tensor& gradient) {
  return sums_[parameter.unit].defined() ? sum_of(parameter).add_(gradient) : gradient;
}

void GradientShards::fill(Parameter& parameter) {
  auto place = place_of(parameter);
  auto& gradient = parameter.tensor.mutable_grad();
  if (parameter.filled) {
    if (missing_[parameter.unit] == 0) {
      fail(ErrorKind::invalid_argument,
           fmt::format("'{}' got a second gradient in one backward pass, after the first had been "
                       "sent; use it in only one activation checkpoint, or in none",
                       parameter.name));
    }
    place.add_(gradient, scale_);
  } else {
    put(with_sum(parameter, gradient), place);
  }
  gradient.reset();
  if (std::exchange(parameter.filled, true) || --missing_[parameter.unit] > 0) return;
  options_.complete(parameter.unit);
  if (options_.overlap != Overlap::none) launch_complete();
}

void GradientShards::put(const torch::Tensor& gradient, torch::Tensor& place) const {
  if (gradient.data_ptr() == place.data_ptr()) {
    if (scale_ != 1) place.mul_(scale_);
  } else if (scale_ != 1) {
    torch::mul_out(place, gradient, torch::scalar_tensor(scale_, gradient.options()));
  } else {
    place.copy_(gradient);
  }
}

void GradientShards::allocate_buffer(std::size_t unit) {
  auto& gradient = gradients_[unit];
  if (std::ranges::find(in_flight_, unit) != in_flight_.end()) settle(unit);
  if (buffers_[unit].defined()) {
    // An earlier backward left this rank's part in the buffer: move it out and add it later.
    if (gradient.defined() && gradient.is_alias_of(buffers_[unit])) {
      gradient = gradient.to(wide(gradient.scalar_type()), false, /*copy=*/true);
    }
    return;
  }
  while (!in_flight_.empty() &&
         (in_flight_.size() >= kMaxInFlight || exchange_.reduced(in_flight_.front()))) {
    settle(in_flight_.front());
  }
  buffers_[unit] = new_buffer(units_[unit]);
}

torch::Tensor GradientShards::new_buffer(const FlatUnit& unit) {
  const MemoryScope memory(options_.keep_all ? MemoryCategory::gradients
                                             : MemoryCategory::communication);
  const auto options = unit.shard().options();
  const auto fits = std::ranges::find_if(idle_, [&](const auto& buffer) {
    return buffer.numel() == unit.elements() && buffer.scalar_type() == unit.shard().scalar_type();
  });
  if (fits == idle_.end()) return torch::empty({unit.elements()}, options);
  auto buffer = *fits;
  idle_.erase(fits);
  return buffer;
}

void GradientShards::recycle(torch::Tensor buffer) {
  idle_.push_back(std::move(buffer));
  if (idle_.size() > kMaxIdle) idle_.erase(idle_.begin());
}

void GradientShards::launch_complete() {
  while (next_ < order_.size() && missing_[order_[next_]] == 0) launch(order_[next_++]);
}

void GradientShards::launch(std::size_t unit) {
  allocate_buffer(unit);
  auto& buffer = buffers_[unit];
  for (const auto& parameter : parameters_) {
    if (parameter.unit != unit || parameter.filled) continue;
    // Gradients accumulated locally in earlier backwards count even if this one added none.
    auto place = place_of(parameter);
    auto& gradient = parameter.tensor.mutable_grad();
    if (sums_[unit].defined()) {
      put(sum_of(parameter), place);
    } else if (gradient.defined()) {
      put(gradient, place);
    } else {
      place.zero_();
    }
    gradient.reset();
  }
  sums_[unit].reset();
  const auto used = units_[unit].used_elements();
  buffer.narrow(0, used, buffer.numel() - used).zero_();
  auto& mean = means_[unit];
  const MemoryScope memory(MemoryCategory::gradients);
  mean = options_.group->getSize() == 1 ? buffer : torch::empty_like(units_[unit].shard());
  try {
    exchange_.start_reduce(unit, buffer, mean, static_cast<int>(next_));
  } catch (const std::exception& error) {
    abort_group(*options_.group, error.what());
    throw;
  }
  in_flight_.push_back(unit);
  stats_.bytes += static_cast<std::int64_t>(buffer.nbytes());
  ++stats_.operations;
}

void GradientShards::end_of_backward() {
  const std::lock_guard lock(*options_.mutex);
  const torch::NoGradGuard no_grad;
  if (!accumulating_) {
    for (const auto unit : order_) {
      if (std::exchange(missing_[unit], 0) > 0) options_.complete(unit);
    }
    launch_complete();
    ++stats_.synchronized;
  }
  reset();
  if (options_.overlap != Overlap::full) settle_all();
  options_.backward_end();
}

bool GradientShards::arrived(std::size_t unit) {
  return std::ranges::find(in_flight_, unit) == in_flight_.end() || exchange_.reduced(unit);
}

void GradientShards::settle(std::size_t unit) {
  const auto found = std::ranges::find(in_flight_, unit);
  if (found == in_flight_.end()) return;
  in_flight_.erase(found);
  const torch::NoGradGuard no_grad;
  const auto begin = options_.clock->now();
  exchange_.wait_reduce(unit);
  stats_.exposed += options_.clock->now() - begin;
  store_mean(unit, std::exchange(means_[unit], {}));
}

void GradientShards::settle_all() {
  while (!in_flight_.empty()) settle(in_flight_.front());
}

void GradientShards::store_mean(std::size_t unit, const torch::Tensor& mean) {
  auto& gradient = gradients_[unit];
  auto& buffer = buffers_[unit];
  const bool alone = mean.is_same(buffer);
  if (gradient.defined()) {
    gradient = gradient.to(wide(gradient.scalar_type())).add_(mean);
  } else if (options_.keep_all && !alone) {
    gradient = units_[unit].own_part(buffer).copy_(mean);
  } else {
    gradient = mean;
  }
  if (options_.keep_all) return;
  auto done = std::exchange(buffer, {});
  if (!alone) recycle(std::move(done));
}

void GradientShards::reset() {
  prepared_ = false;
  backward_begun_ = false;
  accumulating_ = false;
  next_ = 0;
  missing_.assign(units_.size(), 0);
  for (auto& parameter : parameters_) {
    parameter.filled = false;
    ++missing_[parameter.unit];
  }
}

std::size_t GradientShards::gradient_bytes() const {
  std::size_t bytes = 0;
  for (std::size_t unit = 0; unit < units_.size(); ++unit) {
    if (options_.keep_all) bytes += buffers_[unit].nbytes();
    if (sums_[unit].defined()) bytes += sums_[unit].nbytes();
    const auto& gradient = gradients_[unit];
    const bool inside =
        gradient.defined() && buffers_[unit].defined() && gradient.is_alias_of(buffers_[unit]);
    if (gradient.defined() && !inside) bytes += gradient.nbytes();
  }
  return bytes;
}

std::size_t GradientShards::buffer_bytes() const {
  std::size_t bytes = 0;
  for (const auto& buffer : idle_) bytes += buffer.nbytes();
  for (std::size_t unit = 0; unit < units_.size(); ++unit) {
    if (!options_.keep_all && buffers_[unit].defined()) bytes += buffers_[unit].nbytes();
    if (means_[unit].defined() && !means_[unit].is_same(buffers_[unit])) {
      bytes += means_[unit].nbytes();
    }
  }
  return bytes;
}

void GradientShards::fail(ErrorKind kind, const std::string& message) const {
  const auto text = fmt::format("rank {}: Zero: {}", options_.group->getRank(), message);
  abort_group(*options_.group, text);
  throw Exception(kind, text);
}

}  // namespace gradwire
