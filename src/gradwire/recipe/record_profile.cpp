#include "gradwire/recipe/record_profile.h"

#include <chrono>
#include <numeric>

#include "gradwire/base/statistics.h"
#include "gradwire/recipe/batch_stream.h"
#include "gradwire/recipe/models.h"
#include "gradwire/train/optim/amp.h"

namespace gradwire::recipe {
namespace {

constexpr int kRepetitions = 10;

/// Measured times of one child, in seconds.
struct Times {
  std::vector<double> forward;
  std::vector<double> backward;
};

class Stopwatch {
 public:
  explicit Stopwatch(const Clock& clock) : clock_(clock), begin_(clock.now()) {}
  double seconds() const { return std::chrono::duration<double>(clock_.now() - begin_).count(); }

 private:
  const Clock& clock_;
  Time begin_;
};

/// Returns a child's input as the start of a separate graph. Backward ends there, and computes no
/// input gradient if no earlier child needs one.
torch::Tensor cut(const torch::Tensor& value, bool wants_gradient) {
  auto input = value.detach();
  return wants_gradient && input.is_floating_point() ? input.requires_grad_() : input;
}

torch::Tensor forward_of(torch::nn::AnyModule& child, const torch::Tensor& input,
                         Precision precision) {
  const Autocast autocast(precision);
  return child.any_forward(input).get<torch::Tensor>();
}

/// Runs one pass through all children, each by itself. The last child's output goes through the
/// loss; gradients of other outputs are synthetic.
void run_children(torch::nn::Sequential& model, const Batch& batch, Precision precision,
                  const Clock& clock, std::vector<Times>& times) {
  auto value = batch.inputs;
  bool learned = false;
  std::size_t number = 0;
  for (auto child = model->begin(); child != model->end(); ++child, ++number) {
    const auto input = cut(value, learned);
    const Stopwatch forward(clock);
    value = forward_of(*child, input, precision);
    const bool last = number + 1 == model->size();
    const auto result = last ? torch::nll_loss_nd(value, batch.targets) : value;
    times[number].forward.push_back(forward.seconds());
    const auto gradient = torch::ones_like(result);
    const Stopwatch backward(clock);
    if (result.requires_grad()) result.backward(gradient);
    times[number].backward.push_back(backward.seconds());
    learned = learned || !child->ptr()->parameters().empty();
  }
  model->zero_grad();
}

workload::ProfileLayer layer_of(const std::string& name, const torch::nn::Module& child,
                                const Times& times) {
  workload::ProfileLayer layer{.name = name};
  for (const auto& item : child.named_parameters()) {
    if (!item.value().requires_grad()) continue;
    layer.parameters.push_back(
        {.name = name + "." + item.key(), .shape = item.value().sizes().vec()});
  }
  layer.forward = median(times.forward);
  layer.backward = median(times.backward);
  return layer;
}

}  // namespace

workload::LayerProfile record_profile(torch::nn::Sequential& model, const Batch& batch,
                                      Precision precision, const Clock& clock) {
  std::vector<Times> times(model->size());
  for (int repetition = -1; repetition < kRepetitions; ++repetition) {
    if (repetition == 0) times.assign(model->size(), {});  // The first pass is a warm-up.
    run_children(model, batch, precision, clock, times);
  }
  workload::LayerProfile profile;
  double seconds = 0;
  std::size_t number = 0;
  for (const auto& child : model->named_children()) {
    profile.layers.push_back(layer_of(child.key(), *child.value(), times[number++]));
    seconds += profile.layers.back().forward + profile.layers.back().backward;
  }
  profile.compute = std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
  workload::normalize_shares(profile);
  return profile;
}

workload::LayerProfile record_profile(const TrainConfig& config, int ranks, const Clock& clock) {
  const auto data = load_data(config.data, Split::train);
  SampledBatch samples;
  samples.own = batch_size_per_replica(config, ranks) / config.accumulation_steps;
  samples.samples.resize(static_cast<std::size_t>(samples.own));
  std::iota(samples.samples.begin(), samples.samples.end(), 0);
  const auto batch = data.batch(samples);
  auto model = make_model(config.model);
  auto profile = record_profile(model, batch, config.precision, clock);
  profile.name = config.model.name;
  return profile;
}

}  // namespace gradwire::recipe
