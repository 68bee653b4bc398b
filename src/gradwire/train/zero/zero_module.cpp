#include "gradwire/train/zero/zero_module.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "gradwire/base/check.h"
#include "gradwire/base/refuse.h"
#include "gradwire/host/training_host.h"
#include "gradwire/torch/init.h"
#include "gradwire/train/optim/clipping.h"
#include "gradwire/train/parallel/parallel_module.h"
#include "gradwire/train/zero/shards.h"
#include "gradwire/train/zero/unit_plan.h"

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

ZeroModule::ZeroModule(torch::nn::Module& module, const ZeroOptions& options, bool sequential)
    : options_(options) {
  check_options(options_);
  initialize_vector_math();
  auto buffers = all_buffers(module);
  make_contiguous(buffers);
  for (const auto& parameter : all_parameters(module)) {
    if (!parameter.tensor.requires_grad()) frozen_.push_back(parameter);
  }
  broadcast_model("Zero", options_.process_group, all_parameters(module), buffers);
  convert_frozen(frozen_, options_.parameters);
  make_units(module, sequential);
}

ZeroModule::~ZeroModule() = default;

void ZeroModule::consolidate() {
  host().consolidate();
}

std::size_t ZeroModule::units() const {
  return shards_->units().size();
}

void ZeroModule::make_units(const torch::nn::Module& module, bool sequential) {
  const auto& group = options_.process_group;
  const auto parameters = trainable_parameters(module);
  const bool blocks = options_.stage == 3;
  const step::BucketLimits limits = step::limits_capped_at(options_.bucket_cap_mb);
  const auto plan = blocks ? plan_block_units(module, parameters, options_.blocks, limits,
                                              options_.min_block_elements, unit_sharing(module))
                           : plan_whole_units(parameters, limits, unit_sharing(module));
  shards_ = std::make_unique<Shards>(
      group, "Zero",
      ShardsOptions{options_.stage, options_.parameters, options_.codec_min_elements},
      plan.units.size());
  optimizers_ = std::make_unique<ShardOptimizers>(
      group, *shards_,
      ShardOptimizersOptions{options_.optimizer, options_.optimizer_is_per_element,
                             options_.offload_optimizer});
  for (const auto& unit : plan.units) {
    std::vector<NamedTensor> members;
    for (const auto index : unit.members) members.push_back(parameters[index]);
    FlatUnit& added = shards_->add(unit.name, members, unit.root);
    optimizers_->add(added);  // Rejects an unsupported optimizer before anything is released.
    added.release();
  }
  shards_->allocate_gradients();
  own_host_ = std::make_unique<TrainingHost>(
      group, *shards_, optimizers_.get(), all_buffers(module),
      TrainingHostOptions{
          .who = "Zero",
          .policy = {.stage = options_.stage,
                     .overlap = options_.overlap,
                     .prefetch_elements = static_cast<std::size_t>(options_.prefetch_elements)},
          .exchange = {.codec = options_.codec,
                       .warmup_steps = options_.codec_warmup_steps,
                       .seed = options_.codec_seed,
                       .sharded = true,
                       .can_abandon = options_.can_abandon},
          .forward_awaits = options_.forward_awaits || blocks || sequential,
          .broadcast_buffers = options_.broadcast_buffers,
          .clock = options_.clock,
          .trace = options_.trace});
  set_host(*own_host_);
  for (const auto& [block, units] : plan.units_of_block) set_block(*block, units);
}

UnitSharing ZeroModule::unit_sharing(const torch::nn::Module& module) const {
  UnitSharing sharing{.apart = divided_parameters(module)};
  for (const auto& [name, tensor] : trainable_parameters(module)) {
    const bool is_own = std::ranges::any_of(
        options_.own_units, [&](const torch::Tensor& own) { return own.is_same(tensor); });
    if (is_own) sharing.alone.insert(name);
  }
  return sharing;
}

bool ZeroModule::step(BeforeStep before, LossScaler* scaler) {
  host().finish();  // A pending step, if no forward completed it.
  const auto [finite, factor] = unscale_and_clip(scaler);
  if (!finite) {
    shards_->drop_gradients();
    return false;
  }
  step_scaled(std::move(before), factor);
  return true;
}

void ZeroModule::step_scaled(BeforeStep before, double factor) {
  host().finish();
  optimizers_->set_before(std::move(before));
  host().begin_step(factor);
}

bool ZeroModule::can_step_in_backward() const {
  return options_.max_grad_norm == 0 && !optimizers_->communicates();
}

void ZeroModule::step_in_backward(BeforeStep before) {
  if (!can_step_in_backward()) {
    refuse_zero(
        "step_in_backward() steps a unit before all gradients are known, so it excludes "
        "max_grad_norm, Lars, Lamb and RangerLars; call step() after backward");
  }
  host().finish_step();
  optimizers_->set_before(std::move(before));
  host().step_in_backward();
}

ZeroModule::UnscaleResult ZeroModule::unscale_and_clip(LossScaler* scaler) {
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
    result.factor *= clipping_factor(gradient_norm_, options_.max_grad_norm);
  }
  return result;
}

double ZeroModule::squared_norm() {
  host().wait_for_means();
  const TraceScope scope(options_.trace, TraceKind::optimizer, "gradient norm");
  double squares = 0;
  for (std::size_t unit = 0; unit < units(); ++unit) {
    squares += square_of(shards_->gradients().gradient(unit));
  }
  return sum_over_ranks(*group(), {squares})[0];
}

std::map<std::string, double> ZeroModule::squared_norms() {
  host().wait_for_means();
  std::map<std::string, double> squares;
  for (std::size_t unit = 0; unit < units(); ++unit) {
    for (const FlatUnit::Member& member : shards_->units()[unit].members())
      squares[member.name] = 0;
    const auto& gradient = shards_->gradients().gradient(unit);
    if (!gradient.defined()) continue;
    for (const FlatUnit::Piece& piece : shards_->units()[unit].pieces()) {
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

std::size_t ZeroModule::own_unit_of(const torch::Tensor& parameter) const {
  const std::size_t unit = host().unit_of(parameter).value();
  GRADWIRE_CHECK(shards_->units()[unit].members().size() == 1);
  return unit;
}

torch::Tensor ZeroModule::gradient_shard(const torch::Tensor& parameter) {
  const std::size_t unit = own_unit_of(parameter);
  host().wait_for_mean(unit);
  return shards_->gradients().make_gradient(unit);
}

torch::Tensor ZeroModule::value_shard(const torch::Tensor& parameter) {
  return shards_->units()[own_unit_of(parameter)].master();
}

std::vector<TensorPiece> ZeroModule::pieces(bool make_states) {
  require_own_parameters();
  finish();
  std::vector<TensorPiece> found;
  for (auto& unit : shards_->units()) {
    for (const auto& piece : unit.pieces()) {
      found.push_back({piece.member->name, piece.member->parameter.sizes().vec(), piece.begin,
                       unit.master().narrow(0, piece.offset, piece.count)});
    }
  }
  for (const auto* whole : {&std::as_const(frozen_), &host().buffers()}) {
    for (const auto& [name, tensor] : *whole) {
      found.push_back({name, tensor.sizes().vec(), 0, tensor.detach().view({-1}),
                       /*common=*/whole == &frozen_});
    }
  }
  for (auto& state : optimizers_->states(make_states)) found.push_back(std::move(state));
  return found;
}

void ZeroModule::loaded() {
  for (auto& unit : shards_->units()) unit.copy_master_to_shard();
  host().invalidate();
}

ZeroBytes ZeroModule::bytes() {
  ZeroBytes bytes;
  for (const auto& unit : shards_->units()) {
    const auto whole = unit.flat().storage().nbytes();
    bytes.parameters += unit.sharded() ? unit.shard().nbytes() : whole;
    if (unit.sharded() && unit.present()) bytes.buffers += whole;
    if (unit.has_master()) bytes.optimizer += unit.master().nbytes();
  }
  bytes.optimizer += optimizers_->state_bytes();
  bytes.gradients = shards_->gradients().gradient_bytes();
  bytes.buffers += shards_->gradients().buffer_bytes();
  return bytes;
}

// Changes to the module by other code would be undone or ignored. The checks compare each
// parameter's location and version counter, not its elements.

void ZeroModule::check_before_training() const {
  require_trainable_members();
  require_own_parameters();
}

/// A shard holds parts of several parameters: its optimizer cannot leave one of them out, and its
/// momentum would go on moving it.
void ZeroModule::require_trainable_members() const {
  for (const auto& unit : shards_->units()) {
    for (const auto& member : unit.members()) {
      if (member.parameter.requires_grad()) continue;
      host().errors().fail(
          ErrorKind::invalid_argument,
          fmt::format("'{}' was trainable when the Zero was constructed and is frozen now, but "
                      "momentum and weight decay would go on moving it; {}",
                      member.name, kRemedy));
    }
  }
}

void ZeroModule::require_own_parameters() const {
  for (const auto& unit : shards_->units()) {
    if (const auto* member = unit.first_moved()) {
      host().errors().fail(
          ErrorKind::invalid_argument,
          fmt::format("'{}' has been moved to other memory (by to(), torch::load() or another "
                      "wrapper), which "
                      "steps do not update; {}, or load into its pieces() and call loaded()",
                      member->name, kRemedy));
    }
    if (const auto* member = unit.first_written()) {
      host().errors().fail(
          ErrorKind::invalid_argument,
          fmt::format("'{}' has been written to, which the next step would overwrite with what "
                      "the optimizer "
                      "steps ({}); {}, or write to its pieces() and call loaded()",
                      member->name, unit.has_master() ? "the master copy" : "this rank's shard",
                      kRemedy));
    }
  }
}

}  // namespace gradwire
