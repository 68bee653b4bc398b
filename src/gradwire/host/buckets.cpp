#include "gradwire/host/buckets.h"

#include <utility>

#include <fmt/format.h>
#include <torch/torch.h>

#include "gradwire/base/priorities.h"
#include "gradwire/base/refuse.h"

namespace gradwire {
namespace {

std::string not_finite(const std::string& parameter) {
  return fmt::format(
      "the gradient of '{}' is NaN or infinite on at least one rank. Try a lower learning rate, or "
      "look for a division by zero or a logarithm of zero",
      parameter);
}

}  // namespace

Buckets::Buckets(ProcessGroup group, std::string who, std::vector<NamedTensor> parameters,
                 const BucketsOptions& options)
    : group_(std::move(group)),
      errors_(group_, std::move(who)),
      parameters_(std::move(parameters)),
      options_(options),
      filled_(parameters_.size()),
      touched_(parameters_.size()) {
  if (is_alone()) {
    if (!parameters_.empty()) layout_.members.emplace_back();
    for (std::size_t i = 0; i < parameters_.size(); ++i) layout_.members[0].push_back(i);
    return;
  }
  layout_ =
      lay_out_buckets(parameters_, options_.limits, options_.compress, options_.codec_min_elements,
                      errors_.name("gradients"), options_.divided);
  if (!options_.find_unused) return;
  usage_ = torch::zeros({static_cast<std::int64_t>(parameters_.size())}, torch::kFloat32);
  global_usage_ = parameters_.empty() ? usage_ : usage_.to(parameters_[0].tensor.device());
}

std::vector<step::StepUnit> Buckets::step_units() const {
  std::vector<step::StepUnit> units;
  for (const auto& members : layout_.members) units.push_back({.gradients = members.size()});
  return units;
}

std::vector<exchange::UnitShape> Buckets::shapes() const {
  auto shapes = layout_.shapes;
  if (usage_.defined()) shapes.push_back({.count = parameters_.size(), .skip_compression = true});
  return shapes;
}

std::vector<at::Tensor> Buckets::samples() const {
  std::vector<at::Tensor> samples;
  for (const auto& bucket : layout_.buckets) samples.push_back(bucket.numbers());
  if (usage_.defined()) samples.push_back(global_usage_);
  return samples;
}

void Buckets::exchange_by(exchange::Exchange& exchange) {
  exchange_ = &exchange;
  if (!exchange.traits().averages) scale_ = 1.0 / group_->getSize();
}

std::vector<NamedTensor> Buckets::members(std::size_t unit) const {
  std::vector<NamedTensor> members;
  for (const auto index : layout_.members[unit]) members.push_back(parameters_[index]);
  return members;
}

bool Buckets::fill(std::size_t parameter, bool produced) {
  if (filled_[parameter]) return false;
  filled_[parameter] = true;
  if (produced) touched_[parameter] = true;
  const auto [unit, position] = layout_.places[parameter];
  auto& bucket = layout_.buckets[unit];
  auto& gradient = parameters_[parameter].tensor.mutable_grad();
  if (options_.check_finite && !layout_.shapes[unit].skip_compression)
    require_finite_locally(parameter);
  // A gradient that no rank adds to must stay unchanged: move it out of the bucket.
  if (!touched_[parameter] && bucket.holds(gradient, position)) gradient = gradient.clone();
  bucket.put(gradient, position, scale_);
  if (touched_[parameter]) gradient = bucket.view(position);
  return true;
}

void Buckets::drop_gradients() {
  for (const auto& [name, tensor] : parameters_) tensor.mutable_grad().reset();
  touched_.assign(parameters_.size(), false);
}

step::StepHost::Gradients Buckets::gradients(std::size_t unit) {
  if (usage_.defined() && unit + 1 == layout_.buckets.size()) start_usage();
  return {.whole = lend_on_device(layout_.buckets[unit].numbers(), errors_.name("gradients"))};
}

/// The units of a pass start in order, so this follows the others on all ranks.
void Buckets::start_usage() {
  auto* used = usage_.data_ptr<float>();
  for (std::size_t i = 0; i < parameters_.size(); ++i) used[i] = touched_[i] ? 1 : 0;
  global_usage_.copy_(usage_);
  const std::size_t index = layout_.buckets.size();
  usage_work_ = exchange_->all_reduce(
      index, lend_on_device(global_usage_, errors_.name("gradients")), reduction_priority(index));
  ++usage_operations_;
}

void Buckets::wait_for_usage() {
  if (!usage_work_.valid()) return;
  std::exchange(usage_work_, {}).wait();
  usage_.copy_(global_usage_);
}

void Buckets::reduced(std::size_t unit) {
  const torch::NoGradGuard no_grad;
  wait_for_usage();
  assign_gradients(unit);
  for (const auto member : layout_.members[unit]) touched_[member] = false;
  if (options_.check_finite) require_finite(unit);
}

void Buckets::assign_gradients(std::size_t unit) {
  const auto* users = usage_.defined() ? usage_.data_ptr<float>() : nullptr;
  const auto& members = layout_.members[unit];
  for (std::size_t position = 0; position < members.size(); ++position) {
    if (users != nullptr && users[members[position]] == 0) continue;
    parameters_[members[position]].tensor.mutable_grad() = layout_.buckets[unit].view(position);
  }
}

/// Checks before the codec encodes: a block holds values of several parameters, and one that is not
/// finite corrupts all of them. Only this rank detects it, so it tells the others.
void Buckets::require_finite_locally(std::size_t parameter) const {
  const auto& [name, tensor] = parameters_[parameter];
  const auto& gradient = tensor.grad();
  if (!touched_[parameter] || !gradient.defined()) return;
  if (gradient.isfinite().all().item<bool>()) return;
  errors_.fail(ErrorKind::invalid_argument, not_finite(name));
}

void Buckets::require_finite(std::size_t unit) const {
  if (layout_.buckets[unit].flat().isfinite().all().item<bool>()) return;
  for (const auto member : layout_.members[unit]) {
    const auto& gradient = parameters_[member].tensor.grad();
    if (!gradient.defined() || gradient.isfinite().all().item<bool>()) continue;
    // The mean is the same on every rank: each throws by itself, without communication.
    refuse(errors_.text(not_finite(parameters_[member].name)));
  }
}

}  // namespace gradwire
