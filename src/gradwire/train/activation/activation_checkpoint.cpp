#include "gradwire/train/activation/activation_checkpoint.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <optional>

#include <ATen/DeviceAccelerator.h>
#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/custom_function.h>

#include "gradwire/memory/memory_tracker.h"
#include "gradwire/train/activation/await_parameters.h"

namespace gradwire {
namespace {

/// Calls `use` with the generator locked.
template <class Use>
auto with_generator(c10::Device device, Use use) {
  auto generator = at::globalContext().defaultGenerator(device);
  const std::lock_guard lock(generator.mutex());
  return use(generator);
}

}  // namespace

torch::Tensor random_state(c10::Device device) {
  return with_generator(device, [](at::Generator& generator) { return generator.get_state(); });
}

void set_random_state(const torch::Tensor& state, c10::Device device) {
  with_generator(device, [&](at::Generator& generator) { generator.set_state(state); });
}

void set_random_seed(std::uint64_t seed, c10::Device device) {
  with_generator(device, [&](at::Generator& generator) { generator.set_current_seed(seed); });
}

namespace {

/// Returns a dense tensor's elements in memory order.
torch::Tensor in_memory_order(const torch::Tensor& dense) {
  return dense.as_strided({dense.numel()}, {1});
}

}  // namespace

PartitionedTensor own_part(const torch::Tensor& whole, const c10d::ProcessGroup& group) {
  const torch::NoGradGuard no_grad;
  const auto dense = whole.is_non_overlapping_and_dense() ? whole : whole.contiguous();
  const auto elements = dense.numel();
  const auto size = (elements + group.getSize() - 1) / group.getSize();
  const auto begin = std::min(elements, size * group.getRank());
  const auto count = std::min(size, elements - begin);
  auto part = torch::zeros({size}, dense.options().requires_grad(false));
  part.narrow(0, 0, count).copy_(in_memory_order(dense.detach()).narrow(0, begin, count));
  return {std::move(part), dense.sizes().vec(), dense.strides().vec()};
}

torch::Tensor gathered(const PartitionedTensor& tensor, c10d::ProcessGroup& group) {
  const torch::NoGradGuard no_grad;
  const auto size = tensor.part.numel();
  const auto flat = torch::empty({size * group.getSize()}, tensor.part.options());
  if (size > 0) {
    std::vector<std::vector<torch::Tensor>> parts{flat.split(size)};
    std::vector<torch::Tensor> own{tensor.part};
    group.allgather(parts, own)->wait();
  }
  auto whole = torch::empty({0}, flat.options());
  return whole.set_(flat.storage(), 0, tensor.sizes, tensor.strides);
}

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct DeviceOrder {
  bool operator()(c10::Device a, c10::Device b) const {
    return std::pair(a.type(), a.index()) < std::pair(b.type(), b.index());
  }
};

/// State of each device's generator.
using RandomStates = std::map<c10::Device, torch::Tensor, DeviceOrder>;

/// Returns the states of the CPU's generator and of those of the accelerators that hold the
/// tensors.
RandomStates random_states(const variable_list& tensors) {
  RandomStates states{{torch::kCPU, random_state()}};
  for (const auto& tensor : tensors) {
    const auto device = tensor.device();
    if (!at::accelerator::isAccelerator(device.type()) || states.contains(device)) continue;
    states[device] = random_state(device);
  }
  return states;
}

/// Sets the generators to `states` during its lifetime, then restores them.
class RandomReplay {
 public:
  explicit RandomReplay(const RandomStates& states) {
    for (const auto& [device, state] : states) {
      before_[device] = random_state(device);
      set_random_state(state, device);
    }
  }
  ~RandomReplay() {
    for (const auto& [device, state] : before_) set_random_state(state, device);
  }
  RandomReplay(const RandomReplay&) = delete;
  RandomReplay& operator=(const RandomReplay&) = delete;

 private:
  RandomStates before_;
};

/// Autocast settings of one device type.
struct DeviceAutocast {
  explicit DeviceAutocast(c10::DeviceType d) : device(d) {}
  void set() const {
    at::autocast::set_autocast_enabled(device, enabled);
    at::autocast::set_autocast_dtype(device, type);
  }

  c10::DeviceType device;
  bool enabled = at::autocast::is_autocast_enabled(device);
  at::ScalarType type = at::autocast::get_autocast_dtype(device);
};

/// Autocast settings of the CPU and of the accelerator, if there is one.
struct AutocastMode {
  AutocastMode() {
    if (const auto found = at::accelerator::getAccelerator()) accelerator.emplace(*found);
  }
  void set() const {
    cpu.set();
    if (accelerator) accelerator->set();
    at::autocast::set_autocast_cache_enabled(cache);
  }

  DeviceAutocast cpu{at::kCPU};
  std::optional<DeviceAutocast> accelerator;
  bool cache = at::autocast::is_autocast_cache_enabled();
};

class AutocastReplay {
 public:
  explicit AutocastReplay(const AutocastMode& mode) {
    mode.set();
    at::autocast::increment_nesting();
  }
  ~AutocastReplay() {
    // The cache holds casts whose graph has been freed.
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    before_.set();
  }
  AutocastReplay(const AutocastReplay&) = delete;
  AutocastReplay& operator=(const AutocastReplay&) = delete;

 private:
  AutocastMode before_;
};

/// Disables autocast's cache. Forward runs without a graph: cached casts would break other graphs.
class WithoutAutocastCache {
 public:
  WithoutAutocastCache() { at::autocast::set_autocast_cache_enabled(false); }
  ~WithoutAutocastCache() { at::autocast::set_autocast_cache_enabled(before_); }
  WithoutAutocastCache(const WithoutAutocastCache&) = delete;
  WithoutAutocastCache& operator=(const WithoutAutocastCache&) = delete;

 private:
  bool before_ = at::autocast::is_autocast_cache_enabled();
};

/// One call, from forward to backward.
struct Call : torch::CustomClassHolder {
  TensorFunction function;
  RandomStates random;  ///< Generator states before forward; empty if not preserved.
  AutocastMode autocast;
  BlockObserver* observer = block_observer();
  ProcessGroup partition_group;
  std::vector<bool> differentiable;       ///< Which inputs require a gradient.
  std::vector<PartitionedTensor> pieces;  ///< Parts of the inputs, with a partition_group.
};

Call& call_of(AutogradContext* context) {
  return *c10::static_intrusive_pointer_cast<Call>(context->saved_data["call"].toCapsule());
}

variable_list saved_inputs(AutogradContext* context, Call& call) {
  if (!call.partition_group) {
    auto inputs = context->get_saved_variables();
    inputs.pop_back();  // The anchor.
    return inputs;
  }
  variable_list inputs;
  for (const auto& piece : call.pieces) inputs.push_back(gathered(piece, *call.partition_group));
  return inputs;
}

variable_list detached(const variable_list& inputs, const Call& call) {
  variable_list leaves;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    leaves.push_back(inputs[i].detach().requires_grad_(call.differentiable[i]));
  }
  return leaves;
}

variable_list recompute(Call& call, const variable_list& inputs) {
  const MemoryScope memory(MemoryCategory::activations);
  const at::AutoGradMode grad(true);
  const RandomReplay random(call.random);
  const AutocastReplay autocast(call.autocast);
  const BlockScope blocks(call.observer);
  return call.function(inputs);
}

/// Runs backward from the outputs that have a graph and a gradient.
void backward_of(const variable_list& outputs, const variable_list& gradients) {
  variable_list roots;
  variable_list seeds;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (!outputs[i].defined() || !outputs[i].requires_grad() || !gradients[i].defined()) continue;
    roots.push_back(outputs[i]);
    seeds.push_back(gradients[i]);
  }
  if (!roots.empty()) torch::autograd::backward(roots, seeds);
}

/// The anchor makes outputs differentiable if no input is: the function's parameters are not known
/// here.
struct Checkpoint : torch::autograd::Function<Checkpoint> {
  static variable_list forward(AutogradContext* context, const c10::intrusive_ptr<Call>& call,
                               at::TensorList inputs, const torch::Tensor& anchor) {
    context->set_materialize_grads(false);
    context->saved_data["call"] = c10::IValue::make_capsule(call);
    if (call->partition_group) {
      for (const auto& input : inputs)
        call->pieces.push_back(own_part(input, *call->partition_group));
    } else {
      auto saved = inputs.vec();
      saved.push_back(anchor);
      context->save_for_backward(std::move(saved));
    }
    const WithoutAutocastCache casts;
    return call->function(inputs.vec());
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    auto& call = call_of(context);
    const auto leaves = detached(saved_inputs(context, call), call);
    backward_of(recompute(call, leaves), gradients);
    variable_list result(1);  // Gradient of `call`: none.
    for (const auto& leaf : leaves) result.push_back(leaf.grad());
    result.emplace_back();  // Gradient of the anchor: none.
    return result;
  }
};

}  // namespace

bool is_checkpoint(const torch::autograd::Node& node) {
  return dynamic_cast<const torch::autograd::CppNode<Checkpoint>*>(&node) != nullptr;
}

std::vector<torch::Tensor> run_checkpointed(TensorFunction function,
                                            const std::vector<torch::Tensor>& inputs,
                                            const ActivationCheckpointOptions& options) {
  if (!torch::GradMode::is_enabled()) return function(inputs);
  auto call = c10::make_intrusive<Call>();
  call->function = std::move(function);
  if (options.preserve_rng_state) call->random = random_states(inputs);
  call->partition_group = options.partition_group;
  for (const auto& input : inputs) call->differentiable.push_back(input.requires_grad());
  const auto anchor = torch::empty({0}).requires_grad_();
  return Checkpoint::apply(call, at::TensorList(inputs), anchor);
}

}  // namespace gradwire
