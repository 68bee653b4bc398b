#include "gradwire/train/local_sgd/local_sgd.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "gradwire/base/refuse.h"
#include "gradwire/host/bucket.h"
#include "gradwire/host/torch_exchange.h"
#include "gradwire/step/local_step_engine.h"
#include "gradwire/torch/init.h"
#include "gradwire/torch/tensor_span.h"
#include "gradwire/train/data_parallel/model_check.h"
#include "gradwire/train/optim/outer_optimizer.h"

namespace gradwire {

namespace {

constexpr const char* kLocalSgd = "LocalSgd";

std::vector<std::size_t> plan_for(const std::vector<NamedTensor>& parameters,
                                  std::int64_t fragments) {
  std::vector<std::int64_t> sizes;
  for (const auto& parameter : parameters) sizes.push_back(parameter.tensor.numel());
  return step::plan_fragments(sizes, fragments);
}

std::vector<torch::Tensor> tensors_of(const std::vector<NamedTensor>& parameters) {
  std::vector<torch::Tensor> tensors;
  for (const auto& parameter : parameters) tensors.push_back(parameter.tensor);
  return tensors;
}

}  // namespace

class LocalSgd::Core final : private step::StepHost {
 public:
  Core(std::vector<NamedTensor> parameters, ProcessGroup group, const LocalSgdOptions& options);

  void step();
  void synchronize();
  std::int64_t steps() const { return engine_->position().steps; }
  std::string describe() const { return exchange_->describe(); }
  const step::StepStats& stats() const { return engine_->stats(); }
  std::vector<NamedTensor> state();
  void load_state(const std::map<std::string, torch::Tensor>& saved);

 private:
  /// Parameters that are averaged as one unit, and their flat state in the same order.
  struct Bundle {
    std::vector<NamedTensor> parameters;
    Bucket outer;
    std::optional<Bucket> velocity;  ///< With momentum.
    Bucket difference;
  };

  ArgumentName name() const;
  std::vector<exchange::UnitShape> lay_out(const LocalSgdOptions& options);
  void add_bundle(Bucket difference, std::vector<NamedTensor> parameters);
  void make_exchange(const std::vector<exchange::UnitShape>& shapes,
                     const LocalSgdOptions& options);

  Gradients gradients(std::size_t unit) override;
  void reduced(std::size_t) override {}
  bool step(std::size_t unit) override;
  Parameters parameters(std::size_t) override { return {}; }
  void apply_outer(const Bundle& bundle, double mixing);

  void visit_state(const std::function<void(const std::string&, torch::Tensor)>& visit);
  torch::Tensor position() const;
  void set_position(const torch::Tensor& position);

  std::vector<NamedTensor> parameters_;
  ProcessGroup group_;
  std::shared_ptr<const Clock> clock_;
  OuterOptimizer optimizer_;
  double mixing_;
  /// Factor on differences before the reduction: 1 / P if the exchange can only sum.
  double scale_ = 1;
  std::vector<Bundle> bundles_;
  std::vector<std::size_t> fragment_of_;          ///< By bundle.
  std::unique_ptr<exchange::Exchange> exchange_;  ///< Exchange of the differences.
  std::unique_ptr<step::LocalStepEngine> engine_;
};

LocalSgd::Core::Core(std::vector<NamedTensor> parameters, ProcessGroup group,
                     const LocalSgdOptions& options)
    : parameters_(std::move(parameters)),
      group_(std::move(group)),
      clock_(options.clock),
      optimizer_{.learning_rate = options.steps.outer_learning_rate,
                 .momentum = options.steps.outer_momentum},
      mixing_(options.steps.mixing) {
  const step::StreamingSchedule schedule(options.steps);
  const torch::NoGradGuard no_grad;
  initialize_vector_math();
  check_same_model(kLocalSgd, *group_, parameters_);
  broadcast_tensors(*group_, parameters_);
  make_exchange(lay_out(options), options);
  step::StepHost& host = *this;
  engine_ =
      std::make_unique<step::LocalStepEngine>(schedule, fragment_of_, *exchange_, host, *clock_);
}

ArgumentName LocalSgd::Core::name() const {
  return {kLocalSgd, "parameters", group_->getRank()};
}

std::vector<exchange::UnitShape> LocalSgd::Core::lay_out(const LocalSgdOptions& options) {
  const auto plan = plan_for(parameters_, options.steps.fragments);
  const bool compress = options.steps.codec != "none";
  std::vector<exchange::UnitShape> shapes;
  for (std::size_t fragment = 0; fragment < static_cast<std::size_t>(options.steps.fragments);
       ++fragment) {
    std::vector<NamedTensor> here;
    for (std::size_t i = 0; i < plan.size(); ++i) {
      if (plan[i] == fragment) here.push_back(parameters_[i]);
    }
    auto layout =
        lay_out_buckets(here, step::kBundleLimits, compress, options.codec_min_elements, name());
    for (std::size_t b = 0; b < layout.buckets.size(); ++b) {
      std::vector<NamedTensor> members;
      for (const auto index : layout.members[b]) members.push_back(here[index]);
      add_bundle(std::move(layout.buckets[b]), std::move(members));
      fragment_of_.push_back(fragment);
      shapes.push_back(std::move(layout.shapes[b]));
    }
  }
  return shapes;
}

void LocalSgd::Core::add_bundle(Bucket difference, std::vector<NamedTensor> parameters) {
  const auto tensors = tensors_of(parameters);
  Bundle bundle{.parameters = std::move(parameters),
                .outer = Bucket(tensors),
                .velocity = std::nullopt,
                .difference = std::move(difference)};
  for (std::size_t k = 0; k < tensors.size(); ++k) bundle.outer.put(tensors[k], k, 1);
  if (optimizer_.has_velocity()) bundle.velocity.emplace(tensors);
  bundles_.push_back(std::move(bundle));
}

void LocalSgd::Core::make_exchange(const std::vector<exchange::UnitShape>& shapes,
                                   const LocalSgdOptions& options) {
  std::vector<torch::Tensor> flats;
  for (const auto& bundle : bundles_) flats.push_back(bundle.difference.numbers());
  exchange_ = torch_exchange(kLocalSgd, group_, flats, shapes,
                             {.codec = options.steps.codec, .seed = options.seed}, options.trace);
  if (!exchange_->traits().averages) scale_ = 1.0 / group_->getSize();
}

void LocalSgd::Core::step() {
  const torch::NoGradGuard no_grad;
  engine_->step_done();
}

step::StepHost::Gradients LocalSgd::Core::gradients(std::size_t unit) {
  auto& bundle = bundles_[unit];
  for (std::size_t k = 0; k < bundle.parameters.size(); ++k) {
    auto place = bundle.difference.view(k);
    torch::sub_out(place, bundle.outer.view(k), bundle.parameters[k].tensor);
    if (scale_ != 1) place.mul_(scale_);
  }
  return {.whole = lend_on_device(bundle.difference.numbers(), name())};
}

bool LocalSgd::Core::step(std::size_t unit) {
  auto& bundle = bundles_[unit];
  optimizer_.step(bundle.outer.flat(), bundle.velocity ? bundle.velocity->flat() : torch::Tensor(),
                  bundle.difference.flat());
  apply_outer(bundle, mixing_);
  return true;
}

void LocalSgd::Core::apply_outer(const Bundle& bundle, double mixing) {
  for (std::size_t k = 0; k < bundle.parameters.size(); ++k) {
    torch::Tensor own = bundle.parameters[k].tensor;
    if (mixing > 0) {
      own.lerp_(bundle.outer.view(k), 1 - mixing);
    } else {
      own.copy_(bundle.outer.view(k));
    }
  }
}

void LocalSgd::Core::synchronize() {
  const torch::NoGradGuard no_grad;
  engine_->synchronize();
  for (const auto& bundle : bundles_) apply_outer(bundle, 0);
}

}  // namespace gradwire

/// Saving and restoring LocalSgd's state.
namespace gradwire {
namespace {

constexpr const char* kPosition = "local_steps.position";

[[noreturn]] void refuse_state(const std::string& message) {
  refuse("LocalSgd: " + message);
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
void LocalSgd::Core::visit_state(
    const std::function<void(const std::string&, torch::Tensor)>& visit) {
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
torch::Tensor LocalSgd::Core::position() const {
  const auto& position = engine_->position();
  std::vector<std::int64_t> values{
      position.steps,
      position.pending ? static_cast<std::int64_t>(*position.pending) : std::int64_t{-1}};
  values.insert(values.end(), position.averaged_after.begin(), position.averaged_after.end());
  return torch::tensor(values, torch::kInt64);
}

void LocalSgd::Core::set_position(const torch::Tensor& saved) {
  const auto* values = saved.data_ptr<std::int64_t>();
  step::LocalStepEngine::Position position = engine_->position();
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

std::vector<NamedTensor> LocalSgd::Core::state() {
  const torch::NoGradGuard no_grad;
  engine_->settle();
  std::vector<NamedTensor> state{{kPosition, position()}};
  visit_state([&](const auto& name, const auto& tensor) {
    state.push_back({name, tensor.clone()});
  });
  for (const auto& own : exchange_->state()) state.push_back({own.name, copy_of(own.data)});
  return state;
}

void LocalSgd::Core::load_state(const std::map<std::string, torch::Tensor>& saved) {
  const torch::NoGradGuard no_grad;
  set_position(find(saved, kPosition, position()).contiguous());
  visit_state([&](const auto& name, auto tensor) { tensor.copy_(find(saved, name, tensor)); });
  std::vector<exchange::Exchange::SavedState> codecs;
  for (const auto& [name, tensor] : saved) {
    const bool plain = tensor.is_cpu() && tensor.is_contiguous();
    if (plain) codecs.push_back({name, lend_bytes(tensor, {"LocalSgd", name, group_->getRank()})});
  }
  exchange_->load_state(codecs);
}

LocalSgd::LocalSgd(std::vector<NamedTensor> parameters, ProcessGroup group,
                   const LocalSgdOptions& options)
    : core_(std::make_unique<Core>(std::move(parameters), std::move(group), options)) {}

LocalSgd::~LocalSgd() = default;

void LocalSgd::step() {
  core_->step();
}

void LocalSgd::synchronize() {
  core_->synchronize();
}

std::int64_t LocalSgd::steps() const {
  return core_->steps();
}

std::string LocalSgd::describe() const {
  return core_->describe();
}

const step::StepStats& LocalSgd::stats() const {
  return core_->stats();
}

std::vector<NamedTensor> LocalSgd::state() {
  return core_->state();
}

void LocalSgd::load_state(const std::map<std::string, torch::Tensor>& saved) {
  core_->load_state(saved);
}

}  // namespace gradwire
