#include "gradwire/train/data_parallel/replicated_step.h"

#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "gradwire/base/priorities.h"
#include "gradwire/base/refuse.h"
#include "gradwire/train/data_parallel/autograd_graph.h"
#include "gradwire/train/exchange/torch_exchange.h"
#include "gradwire/train/memory/memory_tracker.h"

namespace gradwire {
namespace {

constexpr const char* kDataParallel = "DataParallel";

std::string not_finite(const std::string& parameter) {
  return fmt::format(
      "the gradient of '{}' is NaN or infinite on at least one rank. Try a lower learning rate, or "
      "look for a division by zero or a logarithm of zero",
      parameter);
}

}  // namespace

ReplicatedStep::ReplicatedStep(ProcessGroup group, std::vector<NamedTensor> parameters,
                               ReplicatedStepOptions options)
    : group_(std::move(group)),
      parameters_(std::move(parameters)),
      options_(std::move(options)),
      ready_(parameters_.size()),
      touched_(parameters_.size()) {
  lay_out();
  make_exchange();
  make_optimizers();
  const step::StepPolicy policy{.ranks = group_->getSize(), .overlap = options_.overlap};
  step::StepHost& host = *this;
  engine_ =
      std::make_unique<step::StepEngine>(step_units(), policy, *exchange_, host, *options_.clock);
  GradientListener& listener = *this;
  if (!is_alone()) hooks_ = std::make_unique<GradientHooks>(parameters_, listener);
}

ArgumentName ReplicatedStep::name() const {
  return {kDataParallel, "gradients", group_->getRank()};
}

/// With world size 1 all parameters form one unit, without a bucket.
void ReplicatedStep::lay_out() {
  if (is_alone()) {
    if (!parameters_.empty()) layout_.members.emplace_back();
    for (std::size_t i = 0; i < parameters_.size(); ++i) layout_.members[0].push_back(i);
  } else {
    layout_ = lay_out_buckets(parameters_, options_.buckets, options_.exchange.codec != "none",
                              options_.codec_min_elements, name(), options_.divided);
  }
  for (std::size_t unit = 0; unit < layout_.members.size(); ++unit) {
    for (const auto index : layout_.members[unit])
      unit_of_[parameters_[index].tensor.unsafeGetTensorImpl()] = unit;
  }
}

void ReplicatedStep::make_exchange() {
  auto shapes = layout_.shapes;
  std::vector<torch::Tensor> flats;
  for (const auto& bucket : layout_.buckets) flats.push_back(bucket.numbers());
  if (options_.find_unused && !is_alone()) {
    usage_ = torch::zeros({static_cast<std::int64_t>(parameters_.size())}, torch::kFloat32);
    global_usage_ = parameters_.empty() ? usage_ : usage_.to(parameters_[0].tensor.device());
    shapes.push_back({.count = parameters_.size(), .skip_compression = true});
    flats.push_back(global_usage_);
  }
  exchange_ =
      torch_exchange(kDataParallel, group_, flats, shapes, options_.exchange, options_.trace);
  if (!exchange_->traits().averages) scale_ = 1.0 / group_->getSize();
}

void ReplicatedStep::make_optimizers() {
  if (!options_.optimizer) return;
  for (const auto& members : layout_.members) {
    std::vector<NamedTensor> own;
    for (const auto index : members) own.push_back(parameters_[index]);
    optimizers_.push_back(options_.optimizer(own));
  }
}

std::vector<step::StepUnit> ReplicatedStep::step_units() const {
  std::vector<step::StepUnit> units;
  for (const auto& members : layout_.members) units.push_back({.gradients = members.size()});
  return units;
}

void ReplicatedStep::prepare(const std::vector<torch::Tensor>& outputs, bool synchronize) {
  const Lock lock(mutex_);
  if (is_alone()) return;
  require_complete();
  expected_ = synchronize ? Expected::averages : Expected::sums;
  if (!synchronize || parameters_.empty() || !options_.find_unused) return;
  for (const auto& root : graph_roots(outputs)) roots_.emplace_back(root);
  // No hook would run in this rank's backward, so it would never start its reductions.
  if (unused().size() == parameters_.size()) {
    const torch::NoGradGuard no_grad;
    start();
    on_end_of_backward();
  }
}

void ReplicatedStep::on_gradient(std::size_t parameter) {
  const Lock lock(mutex_);
  const torch::NoGradGuard no_grad;
  if (!expects_gradients() && !hooks_->expected_by_another(parameter)) refuse_gradient(parameter);
  touched_[parameter] = true;
  if (expected_ != Expected::averages) return;
  if (!started_) start();
  mark_ready(parameter);
  if (missing_ == 0) hooks_->call_at_end_of_backward();
}

void ReplicatedStep::start() {
  started_ = true;
  missing_ = parameters_.size();
  ready_.assign(parameters_.size(), false);
  engine_->begin_pass();
  if (!options_.find_unused) return;
  for (const auto parameter : unused()) mark_ready(parameter);
}

std::vector<std::size_t> ReplicatedStep::unused() const {
  std::vector<GraphNode> roots;
  for (const auto& root : roots_) {
    if (auto alive = root.lock()) roots.push_back(std::move(alive));
  }
  const auto reachable = walk_graph(roots);
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (!reachable.contains(hooks_->accumulator(i))) found.push_back(i);
  }
  return found;
}

void ReplicatedStep::mark_ready(std::size_t parameter) {
  if (ready_[parameter]) {
    fail(ErrorKind::invalid_argument,
         fmt::format(
             "parameter '{}' got a second gradient in one backward pass, after the first had "
             "been sent. Call forward before each backward, and return everything that backward "
             "starts from as the result of forward",
             parameters_[parameter].name));
  }
  ready_[parameter] = true;
  --missing_;
  const std::size_t unit = layout_.places[parameter].bucket;
  engine_->before_gradient(unit);
  fill(parameter);
  run_or_abort(*group_, [&] { engine_->gradient_ready(unit); });
}

void ReplicatedStep::fill(std::size_t parameter) {
  const auto [unit, position] = layout_.places[parameter];
  auto& bucket = layout_.buckets[unit];
  auto& gradient = parameters_[parameter].tensor.mutable_grad();
  if (gradient.defined() && gradient.layout() != torch::kStrided) {
    fail(ErrorKind::unsupported,
         fmt::format("the gradient of '{}' is sparse; construct its layer with sparse = false",
                     parameters_[parameter].name));
  }
  if (options_.check_finite && !layout_.shapes[unit].skip_compression)
    require_finite_locally(parameter);
  // A gradient that no rank adds to must stay unchanged: move it out of the bucket.
  if (!touched_[parameter] && bucket.holds(gradient, position)) gradient = gradient.clone();
  bucket.put(gradient, position, scale_);
  if (touched_[parameter]) gradient = bucket.view(position);
}

void ReplicatedStep::on_end_of_backward() {
  const Lock lock(mutex_);
  const torch::NoGradGuard no_grad;
  started_ = false;
  expected_ = Expected::nothing;
  roots_.clear();
  run_or_abort(*group_, [this] { engine_->end_pass(); });
}

step::StepHost::Gradients ReplicatedStep::gradients(std::size_t unit) {
  if (options_.find_unused && unit + 1 == layout_.buckets.size()) start_usage();
  return {.whole = lend_on_device(layout_.buckets[unit].numbers(), name())};
}

/// The units of a pass start in order, so this follows the others on all ranks.
void ReplicatedStep::start_usage() {
  auto* used = usage_.data_ptr<float>();
  for (std::size_t i = 0; i < parameters_.size(); ++i) used[i] = touched_[i] ? 1 : 0;
  global_usage_.copy_(usage_);
  const std::size_t index = layout_.buckets.size();
  usage_transfer_ = exchange_->all_reduce(index, lend_on_device(global_usage_, name()),
                                          reduction_priority(index));
  ++usage_operations_;
}

void ReplicatedStep::wait_usage() {
  if (!usage_transfer_) return;
  std::exchange(usage_transfer_, nullptr)->wait();
  usage_.copy_(global_usage_);
}

void ReplicatedStep::reduced(std::size_t unit) {
  const torch::NoGradGuard no_grad;
  wait_usage();
  assign_gradients(unit);
  for (const auto member : layout_.members[unit]) touched_[member] = false;
  if (options_.check_finite) require_finite(unit);
}

void ReplicatedStep::assign_gradients(std::size_t unit) {
  const auto* users = options_.find_unused ? usage_.data_ptr<float>() : nullptr;
  const auto& members = layout_.members[unit];
  for (std::size_t position = 0; position < members.size(); ++position) {
    if (users != nullptr && users[members[position]] == 0) continue;
    parameters_[members[position]].tensor.mutable_grad() = layout_.buckets[unit].view(position);
  }
}

bool ReplicatedStep::step(std::size_t unit) {
  const TraceScope scope(options_.trace, TraceKind::optimizer);
  const KeptMemoryScope memory(MemoryCategory::optimizer);
  auto& optimizer = *optimizers_[unit];
  if (before_) before_(optimizer);
  optimizer.step();
  optimizer.zero_grad();
  return true;
}

void ReplicatedStep::begin_step(BeforeStep before) {
  const Lock lock(mutex_);
  if (optimizers_.empty()) return;
  engine_->finish_step();
  before_ = std::move(before);
  engine_->begin_step();
}

void ReplicatedStep::before_block(const torch::nn::Module& block) {
  const Lock lock(mutex_);
  if (!pending()) return;
  for (const auto& parameter : block.parameters()) {
    const auto found = unit_of_.find(parameter.unsafeGetTensorImpl());
    if (found != unit_of_.end()) engine_->await(found->second);
  }
}

void ReplicatedStep::finish() {
  const Lock lock(mutex_);
  if (!started_) engine_->finish();
}

bool ReplicatedStep::pending() const {
  return !started_ && engine_->is_pending();
}

bool ReplicatedStep::pending(const torch::Tensor& parameter) const {
  const auto found = unit_of_.find(parameter.unsafeGetTensorImpl());
  return found != unit_of_.end() && engine_->is_pending(found->second);
}

step::StepStats ReplicatedStep::stats() const {
  if (is_alone()) return {};
  step::StepStats stats = engine_->stats();
  stats.operations += usage_operations_;
  return stats;
}

void ReplicatedStep::require_complete() const {
  if (!started_) return;
  std::vector<std::string> missing;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (!ready_[i]) missing.push_back(parameters_[i].name);
  }
  fail(
      ErrorKind::invalid_argument,
      fmt::format("the last backward ended before its gradients were averaged{}{}. If forward does "
                  "not use every parameter each time, set find_unused_parameters; if backward "
                  "threw, do not use this DataParallel any further",
                  missing.empty() ? "" : "; it gave none to: ", fmt::join(missing, ", ")));
}

/// The gradient would be local to this rank, added to a mean, and the replicas would diverge.
void ReplicatedStep::refuse_gradient(std::size_t parameter) const {
  fail(ErrorKind::invalid_argument,
       fmt::format("backward produced a gradient of '{}' without a preceding forward, so it would "
                   "not be averaged. Call this DataParallel, not the wrapped module, before each "
                   "backward; add the losses of one or several forwards and call backward once; to "
                   "keep gradients local to this rank, run forward inside no_sync()",
                   parameters_[parameter].name));
}

/// Checks before the codec encodes: a block holds values of several parameters, and one that is not
/// finite corrupts all of them. Only this rank detects it, so it tells the others.
void ReplicatedStep::require_finite_locally(std::size_t parameter) const {
  const auto& [name, tensor] = parameters_[parameter];
  const auto& gradient = tensor.grad();
  if (!touched_[parameter] || !gradient.defined()) return;
  if (gradient.isfinite().all().item<bool>()) return;
  fail(ErrorKind::invalid_argument, not_finite(name));
}

void ReplicatedStep::require_finite(std::size_t unit) const {
  if (layout_.buckets[unit].flat().isfinite().all().item<bool>()) return;
  for (const auto member : layout_.members[unit]) {
    const auto& gradient = parameters_[member].tensor.grad();
    if (!gradient.defined() || gradient.isfinite().all().item<bool>()) continue;
    // The mean is the same on every rank: each throws by itself, without communication.
    refuse("rank {}: {}: {}", group_->getRank(), kDataParallel,
           not_finite(parameters_[member].name));
  }
}

void ReplicatedStep::fail(ErrorKind kind, const std::string& message) const {
  const auto text = fmt::format("rank {}: {}: {}", group_->getRank(), kDataParallel, message);
  abort_group(*group_, text);
  throw Exception(kind, text);
}

}  // namespace gradwire
