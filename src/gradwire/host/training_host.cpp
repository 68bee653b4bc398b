#include "gradwire/host/training_host.h"

#include <algorithm>
#include <exception>
#include <utility>

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "gradwire/base/refuse.h"
#include "gradwire/host/torch_exchange.h"

namespace gradwire {

TrainingHost::TrainingHost(ProcessGroup group, UnitMemory& memory, UnitOptimizer* optimizer,
                           std::vector<NamedTensor> buffers, TrainingHostOptions options)
    : group_(std::move(group)),
      memory_(memory),
      optimizer_(optimizer),
      steps_(*group_, memory, optimizer, options.trace),
      buffers_(std::move(buffers)),
      options_(std::move(options)),
      errors_(group_, options_.who) {
  const auto& parameters = memory_.parameters();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    unit_of_[parameters[i].tensor.unsafeGetTensorImpl()] = memory_.unit_of(i);
  }
  if (options_.make_exchange) {
    exchange_ = options_.make_exchange(memory_.shapes());
  } else {
    exchange_ = torch_exchange(options_.who, group_, memory_.samples(), memory_.shapes(),
                               options_.exchange, options_.trace);
    options_.policy.ranks = size();
  }
  memory_.exchange_by(*exchange_);
  options_.policy.optimizer_communicates = optimizer_ != nullptr && optimizer_->communicates();
  engine_ = std::make_unique<step::StepEngine>(memory_.step_units(), options_.policy, *exchange_,
                                               steps_, *options_.clock);
  if (options_.exchange.can_abandon) {
    if (optimizer_ == nullptr) {
      refuse("{}: can_abandon requires an optimizer, whose steps commit; pass {{.optimizer = ...}}",
             options_.who);
    }
    last_step_.emplace(buffers_, parameters);
  }
  GradientListener& listener = *this;
  if (size() > 1 || memory_.takes_gradients()) {
    hooks_ = std::make_unique<GradientHooks>(parameters, listener);
  }
}

TrainingHost::~TrainingHost() {
  // The parameters may outlive this, and must contain the last step.
  try {
    if (std::uncaught_exceptions() == 0) finish();
  } catch (const std::exception&) {
    // The communicator has failed; its next user gets the reason.
  }
}

TrainingHost::BlockId TrainingHost::add_block(std::vector<std::size_t> units) {
  const Lock lock(mutex_);
  blocks_.push_back(std::move(units));
  return blocks_.size() - 1;
}

std::optional<std::size_t> TrainingHost::unit_of(const at::Tensor& parameter) const {
  const auto found = unit_of_.find(parameter.unsafeGetTensorImpl());
  return found == unit_of_.end() ? std::nullopt : std::optional(found->second);
}

void TrainingHost::before_forward(bool training_mode) {
  const Lock lock(mutex_);
  training_ = at::GradMode::is_enabled();
  if (options_.broadcast_buffers && synchronizes() && training_ && training_mode)
    synchronize_buffers();
  if (!options_.forward_awaits || (!training_ && !is_sharded())) finish();
  engine_->begin_forward(training_);
}

void TrainingHost::before_block(BlockId block) {
  const Lock lock(mutex_);
  // A block that backward runs again has been stepped; its reductions are not to be waited for.
  if (in_pass() && !is_sharded()) return;
  engine_->before_block(blocks_[block]);
}

void TrainingHost::after_block(BlockId block, const std::vector<at::Tensor>& outputs) {
  const Lock lock(mutex_);
  const auto& units = blocks_[block];
  if (!is_sharded() || units.empty()) return;
  if (at::GradMode::is_enabled()) {
    hook_outputs(outputs, [block, position = engine_->position()](TrainingHost& host) {
      host.begin_pass();
      host.engine_->before_backward(host.blocks_[block], position);
    });
  }
  // Without known tensors in its outputs, no hook can tell when backward reaches the block.
  engine_->after_block(units, /*keep=*/outputs.empty());
}

void TrainingHost::after_forward(const std::vector<at::Tensor>& outputs) {
  const Lock lock(mutex_);
  if (training_) require_complete();
  if (!is_sharded() && training_) require_stepped(outputs);
  if (!in_pass()) engine_->end_forward();
  if (training_) expect_backward(outputs);
}

bool TrainingHost::needs_outputs() const {
  if (memory_.takes_gradients()) return true;
  return size() > 1 && (options_.find_unused || is_pending());
}

template <class Hook>
void TrainingHost::hook_outputs(const std::vector<at::Tensor>& outputs, const Hook& hook) {
  for (const auto& output : outputs) {
    if (!output.defined() || !output.requires_grad()) continue;
    output.register_hook([hook, alive = std::weak_ptr<TrainingHost*>(self_)](const at::Tensor&) {
      const auto self = alive.lock();
      if (!self) return;
      const Lock lock((*self)->mutex_);
      hook(**self);
    });
  }
}

void TrainingHost::expect_backward(const std::vector<at::Tensor>& outputs) {
  const Lock lock(mutex_);
  if (!hooks_) return;
  require_complete();
  completes_mean_ = synchronizes();
  // From stage 2 on, no rank has memory for the gradients of all.
  const bool reduces = completes_mean_ || options_.policy.stage >= 2;
  expected_ = reduces ? Expected::means : Expected::sums;
  if (memory_.takes_gradients()) {
    return hook_outputs(outputs, [](TrainingHost& host) { host.begin_pass(); });
  }
  if (!reduces || !options_.find_unused || memory_.parameters().empty()) return;
  unused_.add_outputs(outputs);
  // No hook would run in this rank's backward, so it would never start its reductions.
  const std::size_t all = memory_.parameters().size();
  if (unused_.find(*hooks_, all).size() == all) {
    const at::NoGradGuard no_grad;
    begin_pass();
    on_end_of_backward();
  }
}

void TrainingHost::begin_pass() {
  if (expected_ != Expected::means || in_pass()) return;
  memory_.begin_pass();
  engine_->begin_pass();
  if (announced_ && completes_mean_) engine_->begin_step();
  if (memory_.takes_gradients()) return hooks_->call_at_end_of_backward();
  if (!options_.find_unused) return;
  for (const auto unused : unused_.find(*hooks_, memory_.parameters().size())) {
    mark_ready(unused, /*produced=*/false);
  }
}

void TrainingHost::on_gradient(std::size_t index) {
  const Lock lock(mutex_);
  const at::NoGradGuard no_grad;
  const bool takes = memory_.takes_gradients();
  if (takes && !parameter(index).tensor.grad().defined()) return;
  if (!expects_gradients() && (takes || !hooks_->expected_by_another(index)))
    errors_.refuse_gradient(parameter(index));
  if (expected_ != Expected::means) {
    if (takes) errors_.require_dense(parameter(index));
    engine_->reductions().settle(memory_.unit_of(index));
    return memory_.accumulate(index);
  }
  begin_pass();
  mark_ready(index, /*produced=*/true);
  // Without its end, the next forward finds out which gradients are missing.
  if (!takes && engine_->reductions().is_complete()) hooks_->call_at_end_of_backward();
}

void TrainingHost::mark_ready(std::size_t index, bool produced) {
  const std::size_t unit = memory_.unit_of(index);
  const bool again = !memory_.takes_gradients() && memory_.is_filled(index);
  if (again || engine_->reductions().missing(unit) == 0)
    errors_.refuse_second_gradient(parameter(index));
  errors_.require_dense(parameter(index));
  engine_->before_gradient(unit);
  if (!memory_.fill(index, produced)) return;
  run_or_abort(*group_, [&] {
    engine_->gradient_ready(unit);
    engine_->poll();
  });
}

void TrainingHost::on_end_of_backward() {
  const Lock lock(mutex_);
  const at::NoGradGuard no_grad;
  expected_ = Expected::nothing;
  unused_.clear();
  if (completes_mean_ && std::exchange(announced_, false)) {
    if (last_step_) last_step_->keep();
    poison();
  }
  run_or_abort(*group_, [this] { engine_->end_pass(); });
}

void TrainingHost::begin_step(double factor) {
  const Lock lock(mutex_);
  if (optimizer_ == nullptr) return;
  engine_->finish_step();
  if (engine_->is_consolidated()) engine_->release_all();  // Gathered values predate this step.
  steps_.set_factor(factor);
  if (last_step_) last_step_->keep();
  poison();
  engine_->begin_step();
}

void TrainingHost::abandon_step() {
  const Lock lock(mutex_);
  if (!last_step_) refuse("{}: set can_abandon to abandon steps", options_.who);
  require_complete();
  announced_ = false;
  expected_ = Expected::nothing;
  unused_.clear();
  engine_->abandon_step();
  memory_.drop_gradients();
  last_step_->restore();
}

void TrainingHost::step_in_backward() {
  const Lock lock(mutex_);
  engine_->finish_step();
  steps_.set_factor(1);
  announced_ = true;
}

/// Reading a parameter is an error until its new values have arrived.
void TrainingHost::poison() {
  if (options_.policy.overlap == step::Overlap::full && size() > 1) memory_.poison();
}

void TrainingHost::finish_step() {
  const Lock lock(mutex_);
  engine_->finish_step();
}

void TrainingHost::finish() {
  const Lock lock(mutex_);
  if (!in_pass()) engine_->finish();
}

void TrainingHost::wait_for_means() {
  const Lock lock(mutex_);
  engine_->reductions().settle_all();
}

void TrainingHost::wait_for_mean(std::size_t unit) {
  const Lock lock(mutex_);
  engine_->reductions().settle(unit);
}

bool TrainingHost::is_pending() const {
  return !in_pass() && engine_->is_pending();
}

void TrainingHost::consolidate() {
  const Lock lock(mutex_);
  engine_->consolidate();
}

void TrainingHost::invalidate() {
  const Lock lock(mutex_);
  engine_->invalidate_all();
  if (last_step_) last_step_->keep();
}

void TrainingHost::synchronize_buffers() {
  if (size() == 1 || buffers_.empty()) return;
  const TraceScope scope(options_.trace, TraceKind::wait, "buffers");
  const auto begin = options_.clock->now();
  broadcast_tensors(*group_, buffers_);
  buffer_time_ += options_.clock->now() - begin;
}

step::StepStats TrainingHost::stats() const {
  if (size() == 1) return {};
  step::StepStats stats = engine_->stats();
  stats.operations += memory_.extra_operations();
  stats.exposed += buffer_time_;
  return stats;
}

exchange::Exchange* TrainingHost::feedback() {
  const Lock lock(mutex_);
  finish();
  engine_->reductions().settle_all();
  return exchange_->traits().has_state ? exchange_.get() : nullptr;
}

void TrainingHost::require_complete() const {
  if (!in_pass()) return;
  std::vector<std::string> missing;
  for (std::size_t i = 0; i < memory_.parameters().size(); ++i) {
    if (!memory_.takes_gradients() && !memory_.is_filled(i)) missing.push_back(parameter(i).name);
  }
  errors_.fail(
      ErrorKind::invalid_argument,
      fmt::format(
          "the last backward ended before its gradients were averaged{}{}. If backward "
          "threw, do not use this {} any further{}",
          missing.empty() ? "" : "; it gave none to: ", fmt::join(missing, ", "), errors_.who(),
          memory_.takes_gradients() ? ""
                                    : "; if forward does not use every parameter each time, set "
                                      "find_unused_parameters"));
}

void TrainingHost::require_stepped(const std::vector<at::Tensor>& outputs) const {
  std::unordered_set<const torch::autograd::Node*> reached;
  for (std::size_t i = 0; i < memory_.parameters().size(); ++i) {
    if (engine_->is_current(memory_.unit_of(i))) continue;
    if (reached.empty()) reached = walk_graph(graph_roots(outputs));
    if (!reached.contains(torch::autograd::impl::grad_accumulator(parameter(i).tensor).get()))
      continue;
    refuse(
        "rank {}: {}: forward used '{}' before the pending step had updated it; call "
        "gradwire::await_parameters(its module) first, or set forward_awaits to false",
        rank(), errors_.who(), parameter(i).name);
  }
}

}  // namespace gradwire
