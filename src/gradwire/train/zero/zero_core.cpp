#include "gradwire/train/zero/zero_core.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <unordered_set>
#include <utility>

#include <fmt/format.h>

#include "gradwire/base/check.h"
#include "gradwire/base/refuse.h"
#include "gradwire/torch/init.h"
#include "gradwire/train/data_parallel/autograd_graph.h"
#include "gradwire/train/data_parallel/model_check.h"
#include "gradwire/train/exchange/torch_exchange.h"
#include "gradwire/train/parallel/parallel_module.h"

namespace gradwire {
namespace {

constexpr const char* kRemedy = "change a module before you construct gradwire::Zero from it";

[[noreturn]] void refuse_zero(const std::string& message) {
  refuse("Zero: " + message);
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

double square_of(const torch::Tensor& gradient) {
  const auto norm =
      torch::linalg_vector_norm(gradient, 2, std::nullopt, false, torch::kFloat64).item<double>();
  return norm * norm;
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
  make_exchange();
  const double scale = exchange_->traits().averages ? 1.0 : 1.0 / size();
  gradients_ = std::make_unique<ShardedGradients>(units_, size(), options_.stage == 1, scale);
  make_engine();
  GradientListener& listener = *this;
  hooks_ = std::make_unique<GradientHooks>(gradients_->parameters(), listener);
}

void ZeroCore::make_engine() {
  std::vector<step::StepUnit> units;
  for (std::size_t unit = 0; unit < units_.size(); ++unit) {
    units.push_back({.elements = static_cast<std::size_t>(units_[unit].elements()),
                     .gradients = units_[unit].members().size(),
                     .is_root = is_root_[unit]});
  }
  const bool communicates =
      std::ranges::any_of(optimizers_, [](auto& each) { return each.sums_over_ranks(); });
  const step::StepPolicy policy{
      .stage = options_.stage,
      .ranks = size(),
      .overlap = options_.overlap,
      .prefetch_elements = static_cast<std::size_t>(options_.prefetch_elements),
      .optimizer_communicates = communicates};
  step::StepHost& host = *this;
  engine_ = std::make_unique<step::StepEngine>(std::move(units), policy, *exchange_, host,
                                               *options_.clock);
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
  const step::BucketLimits limits = step::limits_capped_at(options_.bucket_cap_mb);
  auto plan = blocks ? plan_block_units(module, parameters, options_.blocks, limits,
                                        options_.min_block_elements, unit_sharing(module))
                     : plan_whole_units(parameters, limits, unit_sharing(module));
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

UnitSharing ZeroCore::unit_sharing(const torch::nn::Module& module) const {
  UnitSharing sharing{.divided = divided_parameters(module)};
  for (const auto& [name, tensor] : trainable_parameters(module)) {
    const bool is_own = std::ranges::any_of(
        options_.own_units, [&](const torch::Tensor& own) { return own.is_same(tensor); });
    if (is_own) sharing.alone.insert(name);
  }
  return sharing;
}

void ZeroCore::make_exchange() {
  std::vector<exchange::UnitShape> shapes;
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
  exchange_ = torch_exchange("Zero", group(), shards, shapes,
                             {.codec = options_.codec,
                              .warmup_steps = options_.codec_warmup_steps,
                              .seed = options_.codec_seed,
                              .sharded = true},
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
  start_step(std::move(before), factor);
  return true;
}

void ZeroCore::step_scaled(BeforeStep before, double factor) {
  const Lock lock(mutex_);
  finish();
  start_step(std::move(before), factor);
}

void ZeroCore::start_step(BeforeStep before, double factor) {
  if (engine_->is_consolidated()) engine_->release_all();  // Gathered values predate this step.
  before_ = std::move(before);
  factor_ = factor;
  poison_parameters();
  engine_->begin_step();
}

/// Reading a parameter is an error until its new values have arrived.
void ZeroCore::poison_parameters() {
  if (options_.overlap != step::Overlap::full || size() == 1) return;
  for (auto& unit : units_) unit.poison();
}

bool ZeroCore::can_step_in_backward() const {
  return options_.max_grad_norm == 0 &&
         std::ranges::none_of(optimizers_, [](auto& each) { return each.sums_over_ranks(); });
}

void ZeroCore::step_in_backward(BeforeStep before) {
  const Lock lock(mutex_);
  if (!can_step_in_backward()) {
    refuse_zero(
        "step_in_backward() steps a unit before all gradients are known, so it excludes "
        "max_grad_norm, Lars and Lamb; call step() after backward");
  }
  engine_->finish_step();
  before_ = std::move(before);
  factor_ = 1;
  announced_ = true;
}

ZeroCore::UnscaleResult ZeroCore::unscale_and_clip(LossScaler* scaler) {
  if (scaler == nullptr && options_.max_grad_norm == 0) return {};
  // NaN and infinity survive the sum: all ranks reach the same decision.
  const double norm = std::sqrt(squared_norm());
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

double ZeroCore::squared_norm() {
  const Lock lock(mutex_);
  engine_->reductions().settle_all();
  const TraceScope scope(options_.trace, TraceKind::optimizer, "gradient norm");
  double squares = 0;
  for (std::size_t unit = 0; unit < units_.size(); ++unit) {
    const auto& gradient = gradients_->gradient(unit);
    if (gradient.defined()) squares += square_of(gradient);
  }
  return sum_over_ranks(*group(), {squares})[0];
}

std::map<std::string, double> ZeroCore::squared_norms() {
  const Lock lock(mutex_);
  engine_->reductions().settle_all();
  std::map<std::string, double> squares;
  for (std::size_t unit = 0; unit < units_.size(); ++unit) {
    for (const FlatUnit::Member& member : units_[unit].members()) squares[member.name] = 0;
    const auto& gradient = gradients_->gradient(unit);
    if (!gradient.defined()) continue;
    for (const FlatUnit::Piece& piece : units_[unit].pieces()) {
      squares[piece.member->name] = square_of(gradient.narrow(0, piece.offset, piece.count));
    }
  }
  std::vector<double> sums;
  for (const auto& [name, square] : squares) sums.push_back(square);
  sums = sum_over_ranks(*group(), std::move(sums));
  auto sum = sums.begin();
  for (auto& [name, square] : squares) square = *sum++;
  return squares;
}

std::size_t ZeroCore::own_unit_of(const torch::Tensor& parameter) const {
  const std::size_t unit = unit_of_.at(parameter.unsafeGetTensorImpl());
  GRADWIRE_CHECK(units_[unit].members().size() == 1);
  return unit;
}

torch::Tensor ZeroCore::gradient_shard(const torch::Tensor& parameter) {
  const Lock lock(mutex_);
  const std::size_t unit = own_unit_of(parameter);
  engine_->reductions().settle(unit);
  return gradients_->make_gradient(unit);
}

torch::Tensor ZeroCore::value_shard(const torch::Tensor& parameter) {
  const Lock lock(mutex_);
  return units_[own_unit_of(parameter)].master();
}

bool ZeroCore::step(std::size_t unit) {
  auto gradient = gradients_->take(unit);
  if (!gradient.defined()) return false;
  const TraceScope scope(options_.trace, TraceKind::optimizer);
  optimizers_[unit].step(std::move(gradient), factor_, before_);
  return true;
}

step::StepHost::Gradients ZeroCore::gradients(std::size_t unit) {
  const auto [buffer, mean] = gradients_->prepare_reduction(unit);
  return {lend_on_device(buffer, name("gradients")), lend_on_device(mean, name("gradients"))};
}

step::StepHost::Parameters ZeroCore::parameters(std::size_t unit) {
  units_[unit].allocate();
  return {lend_on_device(units_[unit].shard(), name("parameters")),
          lend_on_device(units_[unit].flat(), name("parameters"))};
}

void ZeroCore::finish() {
  const Lock lock(mutex_);
  engine_->finish();
}

void ZeroCore::consolidate() {
  const Lock lock(mutex_);
  engine_->consolidate();
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
  for (auto& unit : units_) unit.copy_master_to_shard();
  engine_->invalidate_all();
}

step::StepStats ZeroCore::stats() const {
  auto stats = engine_->stats();
  stats.exposed += buffer_time_;
  return size() > 1 ? stats : step::StepStats{};
}

exchange::Exchange* ZeroCore::feedback() {
  const Lock lock(mutex_);
  engine_->finish();
  engine_->reductions().settle_all();
  return options_.codec == "none" || size() == 1 ? nullptr : exchange_.get();
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

const std::vector<std::size_t>& ZeroCore::units_of(const torch::nn::Module& block) {
  auto found = units_of_block_.find(&block);
  if (found == units_of_block_.end()) {
    std::vector<std::size_t> units;
    for (const auto& parameter : block.parameters()) {
      const auto unit = unit_of_.find(parameter.unsafeGetTensorImpl());
      if (unit == unit_of_.end()) continue;
      if (std::ranges::find(units, unit->second) == units.end()) units.push_back(unit->second);
    }
    found = units_of_block_.emplace(&block, std::move(units)).first;
  }
  return found->second;
}

template <class Hook>
void ZeroCore::hook_outputs(const std::vector<torch::Tensor>& outputs, const Hook& hook) {
  for (const auto& output : outputs) {
    if (!output.defined() || !output.requires_grad()) continue;
    output.register_hook([hook, alive = std::weak_ptr<ZeroCore*>(self_)](const torch::Tensor&) {
      if (const auto self = alive.lock()) hook(**self);
    });
  }
}

void ZeroCore::before_forward(const torch::nn::Module& module) {
  const Lock lock(mutex_);
  training_ = torch::GradMode::is_enabled();
  if (training_) {
    require_own_module(module);
    require_trainable_members();
    require_own_parameters();
  }
  if (options_.broadcast_buffers && synchronizes() && training_ && module.is_training())
    synchronize_buffers();
  if (!options_.forward_awaits || (!training_ && !sharded())) finish();
  engine_->begin_forward(training_);
}

void ZeroCore::before_block(const torch::nn::Module& block) {
  const Lock lock(mutex_);
  engine_->before_block(units_of(block));
}

void ZeroCore::after_block(const torch::nn::Module& block,
                           const std::vector<torch::Tensor>& outputs) {
  const Lock lock(mutex_);
  const auto& units = units_of(block);
  if (!sharded() || units.empty()) return;
  if (torch::GradMode::is_enabled()) {
    hook_outputs(outputs, [units, position = engine_->position()](ZeroCore& core) {
      core.on_output_gradient(units, position);
    });
  }
  // Without known tensors in its outputs, no hook can tell when backward reaches the block.
  engine_->after_block(units, /*keep=*/outputs.empty());
}

void ZeroCore::after_forward(const std::vector<torch::Tensor>& outputs) {
  const Lock lock(mutex_);
  if (!sharded() && training_) require_stepped(outputs);
  engine_->end_forward();
  if (training_) prepare_backward(outputs);
}

void ZeroCore::prepare_backward(const std::vector<torch::Tensor>& outputs) {
  if (in_backward_) {
    fail(ErrorKind::invalid_argument,
         "the last backward threw before its gradients were reduced; do not use this Zero any "
         "further");
  }
  expect_backward();
  hook_outputs(outputs, [](ZeroCore& core) {
    const Lock lock(core.mutex_);
    core.begin_backward();
  });
}

void ZeroCore::expect_backward() {
  const Lock lock(mutex_);
  prepared_ = true;
  is_last_pass_ = synchronizes();
  accumulating_ = options_.stage == 1 && !is_last_pass_;
}

void ZeroCore::begin_backward() {
  if (!prepared_ || in_backward_) return;
  in_backward_ = true;
  if (!accumulating_) {
    gradients_->begin_pass();
    engine_->begin_pass();
    if (announced_ && is_last_pass_) engine_->begin_step();
  }
  hooks_->call_at_end_of_backward();
}

void ZeroCore::on_output_gradient(const std::vector<std::size_t>& units, std::size_t position) {
  const Lock lock(mutex_);
  begin_backward();
  engine_->before_backward(units, position);
}

void ZeroCore::on_gradient(std::size_t parameter) {
  const Lock lock(mutex_);
  const torch::NoGradGuard no_grad;
  const auto& [name, tensor] = gradients_->parameters()[parameter];
  if (!tensor.grad().defined()) return;
  if (!prepared_) {
    fail(ErrorKind::invalid_argument,
         fmt::format("'{}' got a gradient without a preceding forward of this Zero; call its "
                     "forward, not that of the wrapped module, before each backward",
                     name));
  }
  begin_backward();
  if (tensor.grad().layout() != torch::kStrided) {
    fail(ErrorKind::unsupported,
         fmt::format("the gradient of '{}' is sparse; construct its layer with sparse = false",
                     name));
  }
  fill(parameter);
}

void ZeroCore::fill(std::size_t parameter) {
  const std::size_t unit = gradients_->unit_of(parameter);
  if (accumulating_) {
    engine_->reductions().settle(unit);
    return gradients_->accumulate(parameter);
  }
  if (engine_->reductions().missing(unit) == 0) {
    fail(ErrorKind::invalid_argument,
         fmt::format("'{}' got a second gradient in one backward pass, after the first had been "
                     "sent; use it in only one activation checkpoint, or in none",
                     gradients_->parameters()[parameter].name));
  }
  engine_->before_gradient(unit);
  if (!gradients_->fill(parameter)) return;
  run_or_abort(*group(), [&] {
    engine_->gradient_ready(unit);
    engine_->poll();
  });
}

void ZeroCore::on_end_of_backward() {
  const Lock lock(mutex_);
  const torch::NoGradGuard no_grad;
  prepared_ = false;
  in_backward_ = false;
  if (accumulating_) return;
  if (is_last_pass_ && std::exchange(announced_, false)) poison_parameters();
  run_or_abort(*group(), [this] { engine_->end_pass(); });
}

void ZeroCore::require_stepped(const std::vector<torch::Tensor>& outputs) const {
  std::unordered_set<const torch::autograd::Node*> reached;
  for (std::size_t unit = 0; unit < units_.size(); ++unit) {
    if (engine_->is_current(unit)) continue;
    if (reached.empty()) reached = walk_graph(graph_roots(outputs));
    for (const auto& member : units_[unit].members()) {
      const auto node = torch::autograd::impl::grad_accumulator(member.parameter);
      if (!reached.contains(node.get())) continue;
      refuse(
          "rank {}: Zero: forward used '{}' before the pending step had updated it; call "
          "gradwire::await_parameters(its module) first, or set forward_awaits to false",
          rank(), member.name);
    }
  }
}

// Changes to the module by other code would be undone or ignored. The checks compare each
// parameter's location and version counter, not its elements.

void ZeroCore::fail(ErrorKind kind, const std::string& message) const {
  const auto text = fmt::format("rank {}: Zero: {}", rank(), message);
  abort_group(*group(), text);
  throw Exception(kind, text);
}

void ZeroCore::require_own_module(const torch::nn::Module& module) const {
  const auto unknown = first_unknown_trainable(module, [this](const torch::Tensor& parameter) {
    return unit_of_.contains(parameter.unsafeGetTensorImpl());
  });
  if (!unknown.empty()) {
    fail(ErrorKind::invalid_argument,
         fmt::format("'{}' is trainable, but was absent or frozen when the Zero was constructed, "
                     "so it would never be stepped; {}",
                     unknown, kRemedy));
  }
}

/// A shard holds parts of several parameters: its optimizer cannot leave one of them out, and its
/// momentum would go on moving it.
void ZeroCore::require_trainable_members() const {
  for (const auto& unit : units_) {
    for (const auto& member : unit.members()) {
      if (member.parameter.requires_grad()) continue;
      fail(ErrorKind::invalid_argument,
           fmt::format("'{}' was trainable when the Zero was constructed and is frozen now, but "
                       "momentum and weight decay would go on moving it; {}",
                       member.name, kRemedy));
    }
  }
}

void ZeroCore::require_own_parameters() const {
  for (const auto& unit : units_) {
    if (const auto* member = unit.first_moved()) {
      fail(ErrorKind::invalid_argument,
           fmt::format("'{}' has been moved to other memory (by to(), torch::load() or another "
                       "wrapper), which "
                       "steps do not update; {}, or load into its pieces() and call loaded()",
                       member->name, kRemedy));
    }
    if (const auto* member = unit.first_written()) {
      fail(ErrorKind::invalid_argument,
           fmt::format("'{}' has been written to, which the next step would overwrite with what "
                       "the optimizer "
                       "steps ({}); {}, or write to its pieces() and call loaded()",
                       member->name, unit.has_master() ? "the master copy" : "this rank's shard",
                       kRemedy));
    }
  }
}

}  // namespace gradwire
