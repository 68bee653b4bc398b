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
  for (std::size_t index = 0; index < bundles_.size(); ++index) {
    const auto& bundle = bundles_[index];
    const bool in_flight = engine_->position().pending == fragment_of_[index];
    for (std::size_t k = 0; k < bundle.parameters.size(); ++k) {
      const auto& name = bundle.parameters[k].name;
      visit(name + ".outer", bundle.outer.view(k));
      if (bundle.velocity) visit(name + ".outer_velocity", bundle.velocity->view(k));
      if (in_flight) visit(name + ".outer_difference", bundle.difference.view(k));
    }
  }
}

/// Returns the step count, the fragment in flight (-1: none), and the step after which each
/// fragment was last averaged.
torch::Tensor LocalSgd::position() const {
  const auto& position = engine_->position();
  std::vector<std::int64_t> values{
      position.steps,
      position.pending ? static_cast<std::int64_t>(*position.pending) : std::int64_t{-1}};
  values.insert(values.end(), position.averaged_after.begin(), position.averaged_after.end());
  return torch::tensor(values, torch::kInt64);
}

void LocalSgd::set_position(const torch::Tensor& saved) {
  const auto* values = saved.data_ptr<std::int64_t>();
  LocalStepEngine::Position position = engine_->position();
  const auto fragments = static_cast<std::int64_t>(position.averaged_after.size());
  if (values[1] >= fragments)
    refuse_state(fmt::format("'{}' names fragment {} of {}", kPosition, values[1], fragments));
  position.steps = values[0];
  position.pending.reset();
  // state() waited for the fragment in flight before saving.
  if (values[1] >= 0) position.pending = static_cast<std::size_t>(values[1]);
  position.averaged_after.assign(values + 2, values + 2 + fragments);
  engine_->set_position(std::move(position));
}

std::vector<NamedTensor> LocalSgd::state() {
  const torch::NoGradGuard no_grad;
  engine_->settle();
  std::vector<NamedTensor> state{{kPosition, position()}};
  visit_state([&](const auto& name, const auto& tensor) {
    state.push_back({name, tensor.clone()});
  });
  for (const auto& own : exchange_->state()) state.push_back({own.name, copy_of(own.data)});
  return state;
}

void LocalSgd::load_state(const std::map<std::string, torch::Tensor>& saved) {
  const torch::NoGradGuard no_grad;
  set_position(find(saved, kPosition, position()).contiguous());
  visit_state([&](const auto& name, auto tensor) { tensor.copy_(find(saved, name, tensor)); });
  std::vector<Exchange::SavedState> codecs;
  for (const auto& [name, tensor] : saved) {
    const bool plain = tensor.is_cpu() && tensor.is_contiguous();
    if (plain) codecs.push_back({name, lend_bytes(tensor, {"LocalSgd", name, group_->getRank()})});
  }
  exchange_->load_state(codecs);
}

}  // namespace gradwire
