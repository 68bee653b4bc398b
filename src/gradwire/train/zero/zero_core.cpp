#include "gradwire/train/zero/zero_core.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <utility>

#include <fmt/format.h>

#include "gradwire/base/error.h"
#include "gradwire/torch/tensor_span.h"
#include "gradwire/torch/vector_math.h"
#include "gradwire/train/data_parallel/model_check.h"

namespace gradwire {
namespace {

using Lock = std::lock_guard<std::recursive_mutex>;

[[noreturn]] void refuse_zero(const std::string& message) {
  throw Exception(ErrorKind::invalid_argument, "Zero: " + message);
}

void check_options(const ZeroOptions& options) {
  if (!options.process_group) {
    refuse_zero("no process_group; pass {.process_group = gradwire::init()}");
  }
  if (!options.optimizer) {
    refuse_zero(
        "no optimizer; pass {.optimizer = ...}, a function that makes one for a list of "
        "parameters");
  }
  if (options.stage < 1 || options.stage > 3) {
    refuse_zero(
        fmt::format("stage is {}; it must be 1, 2 or 3 (0 is DataParallel)", options.stage));
  }
  if (!(options.bucket_cap_mb > 0)) {
    refuse_zero(fmt::format("bucket_cap_mb is {}; it must be positive", options.bucket_cap_mb));
  }
  if (!(options.max_grad_norm >= 0)) {
    refuse_zero(
        fmt::format("max_grad_norm is {}; it must be positive, or 0", options.max_grad_norm));
  }
}

/// Checkpoints store buffers flat.
void make_contiguous(std::vector<NamedTensor>& buffers) {
  for (auto& [name, tensor] : buffers) {
    if (!tensor.is_contiguous()) tensor.set_data(tensor.data().contiguous());
  }
}

/// Frozen parameters are replicated, but converted for the computation like the others.
void convert_frozen(std::vector<NamedTensor>& frozen, std::optional<torch::ScalarType> type) {
  const torch::NoGradGuard no_grad;
  for (auto& [name, tensor] : frozen) {
    auto data = tensor.data().contiguous();
    if (type && tensor.is_floating_point()) data = data.to(*type);
    if (!data.is_same(tensor)) tensor.set_data(data);
  }
}

}  // namespace

ZeroCore::ZeroCore(torch::nn::Module& module, const ZeroOptions& options, bool sequential)
    : options_(options), buffers_(all_buffers(module)) {
  check_options(options_);
  initialize_vector_math();
  make_contiguous(buffers_);
  auto state = all_parameters(module);
  for (const auto& parameter : state) {
    if (!parameter.tensor.requires_grad()) frozen_.push_back(parameter);
  }
  state.insert(state.end(), buffers_.begin(), buffers_.end());
  if (size() > 1) {
    check_same_model("Zero", *group(), state);
    broadcast_tensors(*group(), state);
  }
  state.clear();
  convert_frozen(frozen_, options_.parameters);
  plan_units(module, sequential);
  exchange_ = make_exchange();
  gradients_ = std::make_unique<GradientShards>(
      units_, *exchange_,
      GradientShardsOptions{.group = group(),
                            .keep_all = options_.stage == 1,
                            .serialize_passes = options_.codec != "none",
                            .overlap = options_.overlap,
                            .clock = options_.clock,
                            .complete = [this](std::size_t unit) { on_complete(unit); },
                            .backward_end = [this] { on_backward_end(); },
                            .mutex = &mutex_});
  gathers_ = std::make_unique<ParameterGathers>(
      units_, *exchange_,
      ParameterGathers::Options{.clock = options_.clock,
                                .ready =
                                    [this](std::size_t unit) {
                                      return !pending_step_[unit] ||
                                             exchange_->requires_same_order() ||
                                             gradients_->arrived(unit);
                                    },
                                .step_unit = [this](std::size_t unit) { step_unit(unit); }});
  pending_step_.assign(units_.size(), false);
  complete_.assign(units_.size(), false);
  for (std::size_t unit = 0; unit < units_.size(); ++unit) gathers_->release(unit);
}

ZeroCore::~ZeroCore() {
  // The module may outlive this, and must contain the last step.
  try {
    if (std::uncaught_exceptions() == 0) finish();
  } catch (const std::exception&) {
    // The communicator has failed; its next user gets the reason.
  }
  for (auto& unit : units_) unit.unpoison();
}

void ZeroCore::plan_units(const torch::nn::Module& module, bool sequential) {
  const auto parameters = trainable_parameters(module);
  const bool blocks = options_.stage == 3;
  const BucketLimits limits = limits_capped_at(options_.bucket_cap_mb);
  auto plan = blocks ? plan_block_units(module, parameters, options_.blocks, limits,
                                        options_.min_block_elements)
                     : plan_whole_units(parameters, limits);
  if (blocks || sequential) options_.forward_awaits = true;
  units_of_block_ = std::move(plan.units_of_block);
  units_.reserve(plan.units.size());  // Optimizers hold references to units.
  optimizers_.reserve(plan.units.size());
  for (const auto& unit : plan.units) {
    std::vector<NamedTensor> members;
    for (const auto index : unit.members) {
      members.push_back(parameters[index]);
      unit_of_[parameters[index].tensor.unsafeGetTensorImpl()] = units_.size();
    }
    units_.emplace_back(unit.name, members,
                        FlatUnitOptions{.rank = rank(),
                                        .ranks = size(),
                                        .sharded = options_.stage == 3,
                                        .type = options_.parameters});
    is_root_.push_back(unit.root);
    make_optimizer(units_.back());  // Rejects an unsupported optimizer before anything is released.
    units_.back().release();
  }
}

std::unique_ptr<UnitExchange> ZeroCore::make_exchange() const {
  std::vector<BucketShape> shapes;
  std::vector<torch::Tensor> shards;
  for (const auto& unit : units_) {
    shards.push_back(unit.shard());
    const auto type = shards.back().scalar_type();
    const auto count = static_cast<std::size_t>(unit.elements());
    shapes.push_back({.count = count,
                      .type = data_type_of(type).value_or(DataType::float32),
                      .skip_compression = static_cast<std::size_t>(unit.used_elements()) <
                                          options_.codec_min_elements,
                      .tensors = {{unit.name(), 0, count, 1}}});
  }
  return unit_exchange(group(), shapes, shards,
                       {.codec = options_.codec,
                        .warmup_steps = options_.codec_warmup_steps,
                        .seed = options_.codec_seed},
                       options_.trace);
}

void ZeroCore::make_optimizer(FlatUnit& unit) {
  const auto sum = [this](std::vector<double> values) {
    return sum_over_ranks(*group(), std::move(values));
  };
  optimizers_.emplace_back(unit, options_.optimizer, options_.optimizer_is_per_element, sum);
  if (!options_.offload_optimizer.empty() && !unit.shard().is_cpu()) {
    refuse_zero(fmt::format(
        "offload_optimizer supports only parameters on the CPU, but '{}' is on {}; leave it out",
        unit.members().front().name, unit.shard().device().str()));
  }
  optimizers_.back().offload(options_.offload_optimizer);
}

bool ZeroCore::step(BeforeStep before, LossScaler* scaler) {
  const Lock lock(mutex_);
  finish();  // A pending step, if no forward completed it.
  const auto [finite, factor] = unscale_and_clip(scaler);
  if (!finite) {
    for (std::size_t unit = 0; unit < units_.size(); ++unit) gradients_->take(unit);
    return false;
  }
  if (consolidated_) release_all();  // Gathered values predate this step.
  before_ = std::move(before);
  factor_ = factor;
  pending_step_.assign(units_.size(), true);
  if (options_.overlap != Overlap::full || size() == 1) {
    finish();
    return true;
  }
  for (auto& unit : units_) unit.poison();
  const bool collective =
      std::ranges::any_of(optimizers_, [](auto& each) { return each.sums_over_ranks(); });
  if (collective) step_all();
  if (sharded()) return true;
  // Forward first needs the units that backward reached last.
  for (std::size_t unit = units_.size(); unit-- > 0;) gathers_->prefetch(unit);
  gathers_->advance();
  return true;
}

ZeroCore::UnscaleResult ZeroCore::unscale_and_clip(LossScaler* scaler) {
  if (scaler == nullptr && options_.max_grad_norm == 0) return {};
  gradients_->settle_all();
  const TraceScope scope(options_.trace, TraceKind::optimizer, "gradient norm");
  double squares = 0;
  for (std::size_t unit = 0; unit < units_.size(); ++unit) {
    const auto& gradient = gradients_->gradient(unit);
    if (!gradient.defined()) continue;
    const auto norm =
        torch::linalg_vector_norm(gradient, 2, std::nullopt, false, torch::kFloat64).item<double>();
    squares += norm * norm;
  }
  // NaN and infinity survive the sum: all ranks reach the same decision.
  const double norm = std::sqrt(sum_over_ranks(*group(), {squares})[0]);
  UnscaleResult result;
  result.finite = scaler == nullptr || std::isfinite(norm);
  if (scaler != nullptr) {
    result.factor = 1 / scaler->scale();
    scaler->update(result.finite);
  }
  gradient_norm_ = norm * result.factor;
  if (options_.max_grad_norm > 0 && result.finite) {
    result.factor *= std::min(1.0, options_.max_grad_norm / (gradient_norm_ + 1e-6));
  }
  return result;
}

void ZeroCore::step_unit(std::size_t unit) {
  if (!pending_step_[unit]) return;
  gradients_->settle(unit);
  pending_step_[unit] = false;
  auto gradient = gradients_->take(unit);
  if (!gradient.defined()) return;
  const TraceScope scope(options_.trace, TraceKind::optimizer);
  if (size() > 1) gathers_->invalidate(unit);
  optimizers_[unit].step(std::move(gradient), factor_, before_);
}

void ZeroCore::step_all() {
  for (std::size_t unit = units_.size(); unit-- > 0;) step_unit(unit);
}

void ZeroCore::finish() {
  const Lock lock(mutex_);
  const bool stepping = std::ranges::find(pending_step_, true) != pending_step_.end();
  if (sharded()) {
    if (stepping) step_all();
    return;
  }
  if (stepping) {
    for (std::size_t unit = units_.size(); unit-- > 0;) gathers_->prefetch(unit);
  }
  gathers_->start_queued();
  for (std::size_t unit = units_.size(); unit-- > 0;) gathers_->await(unit);
}

void ZeroCore::consolidate() {
  const Lock lock(mutex_);
  finish();
  if (!sharded() || consolidated_) return;
  for (std::size_t unit = 0; unit < units_.size(); ++unit) gathers_->prefetch(unit);
  for (std::size_t unit = 0; unit < units_.size(); ++unit) gathers_->await(unit);
  consolidated_ = true;
}

void ZeroCore::synchronize_buffers() {
  if (size() == 1 || buffers_.empty()) return;
  const TraceScope scope(options_.trace, TraceKind::wait, "buffers");
  const auto begin = options_.clock->now();
  broadcast_tensors(*group(), buffers_);
  buffer_time_ += options_.clock->now() - begin;
}

std::vector<TensorPiece> ZeroCore::pieces(bool make_states) {
  const Lock lock(mutex_);
  require_own_parameters();
  finish();
  std::vector<TensorPiece> found;
  for (auto& unit : units_) {
    for (const auto& piece : unit.pieces()) {
      found.push_back({piece.member->name, piece.member->parameter.sizes().vec(), piece.begin,
                       unit.master().narrow(0, piece.offset, piece.count)});
    }
  }
  for (const auto* whole : {&frozen_, &buffers_}) {
    for (const auto& [name, tensor] : *whole) {
      found.push_back({name, tensor.sizes().vec(), 0, tensor.detach().view({-1}),
                       /*common=*/whole == &frozen_});
    }
  }
  for (auto& optimizer : optimizers_) {
    for (auto& state : optimizer.states(make_states)) found.push_back(std::move(state));
  }
  return found;
}

void ZeroCore::loaded() {
  const Lock lock(mutex_);
  if (consolidated_) release_all();
  for (std::size_t unit = 0; unit < units_.size(); ++unit) {
    units_[unit].copy_master_to_shard();
    if (size() > 1) gathers_->invalidate(unit);
    if (size() > 1 && !sharded()) gathers_->await(unit);
    gathers_->release(unit);
  }
}

ReducerStats ZeroCore::stats() const {
  auto stats = gradients_->stats();
  stats.exposed += gathers_->exposed() + buffer_time_;
  return size() > 1 ? stats : ReducerStats{};
}

Averager* ZeroCore::feedback() {
  const Lock lock(mutex_);
  finish();
  gradients_->settle_all();
  exchange_->end_pass();
  return exchange_->feedback();
}

ZeroBytes ZeroCore::bytes() {
  const Lock lock(mutex_);
  ZeroBytes bytes;
  for (std::size_t i = 0; i < units_.size(); ++i) {
    const auto& unit = units_[i];
    const auto whole = unit.flat().storage().nbytes();
    bytes.parameters += unit.sharded() ? unit.shard().nbytes() : whole;
    if (unit.sharded() && unit.present()) bytes.buffers += whole;
    bytes.optimizer += optimizers_[i].state_bytes();
    if (unit.has_master()) bytes.optimizer += unit.master().nbytes();
  }
  bytes.gradients = gradients_->gradient_bytes();
  bytes.buffers += gradients_->buffer_bytes();
  return bytes;
}

}  // namespace gradwire
