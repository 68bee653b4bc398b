#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "gradwire/base/error.h"
#include "gradwire/torch/tensor_span.h"
#include "gradwire/train/local_sgd/local_sgd.h"

/// Saving and restoring LocalSgd's state.
namespace gradwire {
namespace {

constexpr const char* kPosition = "local_steps.position";

[[noreturn]] void refuse_state(const std::string& message) {
  throw Exception(ErrorKind::invalid_argument, "LocalSgd: " + message);
}

std::string describe(const torch::Tensor& tensor) {
  return fmt::format("[{}] of {}", fmt::join(tensor.sizes().begin(), tensor.sizes().end(), ", "),
                     torch::toString(tensor.scalar_type()));
}

const torch::Tensor& find(const std::map<std::string, torch::Tensor>& saved,
                          const std::string& name, const torch::Tensor& like) {
  const auto found = saved.find(name);
  if (found == saved.end()) refuse_state(fmt::format("the saved state has no '{}'", name));
  const auto& tensor = found->second;
  if (tensor.sizes() == like.sizes() && tensor.scalar_type() == like.scalar_type()) return tensor;
  refuse_state(fmt::format(
      "'{}' is {} in the saved state and {} here; resume with the saved model and local_steps",
      name, describe(tensor), describe(like)));
}

}  // namespace

/// Visits all state beside the parameters, named after them.
void LocalSgd::visit_state(const std::function<void(const std::string&, torch::Tensor)>& visit) {
  for (std::size_t fragment = 0; fragment < fragments_.size(); ++fragment) {
    const bool in_flight = pending_ && pending_->fragment == fragment;
    for (const auto index : fragments_[fragment].bundles) {
      const auto& bundle = bundles_[index];
      for (std::size_t k = 0; k < bundle.parameters.size(); ++k) {
        const auto& name = bundle.parameters[k].name;
        visit(name + ".outer", bundle.outer.view(k));
        if (bundle.velocity) visit(name + ".outer_velocity", bundle.velocity->view(k));
        if (in_flight) visit(name + ".outer_difference", bundle.difference.view(k));
      }
    }
  }
}

/// Returns the step count, the fragment in flight (-1: none), and the step after which each
/// fragment was last averaged.
torch::Tensor LocalSgd::position() const {
  std::vector<std::int64_t> values{
      steps_, pending_ ? static_cast<std::int64_t>(pending_->fragment) : std::int64_t{-1}};
  for (const auto& fragment : fragments_) values.push_back(fragment.started_after);
  return torch::tensor(values, torch::kInt64);
}

void LocalSgd::set_position(const torch::Tensor& position) {
  const auto* values = position.data_ptr<std::int64_t>();
  const auto fragment = values[1];
  if (fragment >= static_cast<std::int64_t>(fragments_.size())) {
    refuse_state(
        fmt::format("'{}' names fragment {} of {}", kPosition, fragment, fragments_.size()));
  }
  steps_ = values[0];
  pending_.reset();
  // state() waited for the fragment in flight before saving.
  if (fragment >= 0)
    pending_ = PendingAverage{.fragment = static_cast<std::size_t>(fragment), .arrived = true};
  for (std::size_t f = 0; f < fragments_.size(); ++f) fragments_[f].started_after = values[2 + f];
}

std::vector<NamedTensor> LocalSgd::state() {
  const torch::NoGradGuard no_grad;
  if (pending_ && !std::exchange(pending_->arrived, true)) wait_for({pending_->fragment});
  std::vector<NamedTensor> state{{kPosition, position()}};
  visit_state([&](const auto& name, const auto& tensor) {
    state.push_back({name, tensor.clone()});
  });
  for (const auto& own : averager_->state()) state.push_back({own.name, copy_of(own.data)});
  return state;
}

void LocalSgd::load_state(const std::map<std::string, torch::Tensor>& saved) {
  const torch::NoGradGuard no_grad;
  set_position(find(saved, kPosition, position()).contiguous());
  visit_state([&](const auto& name, auto tensor) { tensor.copy_(find(saved, name, tensor)); });
  std::vector<Averager::SavedState> codecs;
  for (const auto& [name, tensor] : saved) {
    const bool plain = tensor.is_cpu() && tensor.is_contiguous();
    if (plain) codecs.push_back({name, lend_bytes(tensor, {"LocalSgd", name, group_->getRank()})});
  }
  averager_->load_state(codecs);
}

}  // namespace gradwire
