#include "gradwire/train/activation/random_state.h"

#include <mutex>

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

}  // namespace gradwire
