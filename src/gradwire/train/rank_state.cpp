#include "gradwire/train/rank_state.h"

#include <algorithm>
#include <mutex>
#include <sstream>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "gradwire/base/error.h"
#include "gradwire/train/averager_state.h"

namespace gradwire {
namespace {

namespace fs = std::filesystem;
using Tensors = std::map<std::string, torch::Tensor>;

constexpr const char* kFeedback = "feedback.";
constexpr const char* kLocal = "local.";
constexpr const char* kOptimizer = "optimizer.";
constexpr const char* kOwn = "model.";
constexpr const char* kRandom = "random";
constexpr const char* kScaler = "loss_scaler";

[[noreturn]] void refuse(const std::string& message) {
  throw Exception(ErrorKind::invalid_argument, message);
}

const torch::Tensor& find(const Tensors& saved, const std::string& name, const fs::path& path) {
  const auto found = saved.find(name);
  if (found == saved.end()) refuse(fmt::format("{} has no '{}'", path.string(), name));
  return found->second;
}

torch::Tensor bytes_of(const torch::optim::Optimizer& optimizer) {
  torch::serialize::OutputArchive archive;
  optimizer.save(archive);
  std::ostringstream stream;
  archive.save_to(stream);
  const auto text = stream.str();
  auto bytes = torch::empty({static_cast<std::int64_t>(text.size())}, torch::kUInt8);
  std::ranges::copy(text, bytes.data_ptr<std::uint8_t>());
  return bytes;
}

void load_optimizer(torch::optim::Optimizer& optimizer, const torch::Tensor& bytes) {
  const auto* begin = reinterpret_cast<const char*>(bytes.data_ptr<std::uint8_t>());
  torch::serialize::InputArchive archive;
  archive.load_from(begin, static_cast<std::size_t>(bytes.numel()));
  optimizer.load(archive);
}

void load_optimizers(const RunState& run, const Tensors& saved, const fs::path& path) {
  const auto& optimizers = run.parallel.steps()->optimizers();
  const auto count = std::ranges::count_if(
      saved, [](const auto& item) { return item.first.starts_with(kOptimizer); });
  if (count != std::ssize(optimizers)) {
    refuse(
        fmt::format("{} is of a run with {} buckets, not {}: leave parallel.bucket_cap_mb and "
                    "the codec as they were",
                    path.string(), count, optimizers.size()));
  }
  for (std::size_t i = 0; i < optimizers.size(); ++i) {
    load_optimizer(*optimizers[i], saved.at(kOptimizer + std::to_string(i)));
  }
}

Tensors without_prefix(const Tensors& saved, const std::string& prefix) {
  Tensors found;
  for (const auto& [name, tensor] : saved) {
    if (name.starts_with(prefix)) found[name.substr(prefix.size())] = tensor;
  }
  return found;
}

}  // namespace

std::vector<NamedTensor> model_tensors(const torch::nn::Module& module) {
  auto tensors = all_parameters(module);
  for (auto& buffer : all_buffers(module)) tensors.push_back(std::move(buffer));
  return tensors;
}

std::vector<NamedTensor> rank_tensors(const RunState& run) {
  std::vector<NamedTensor> tensors;
  const auto add = [&tensors](std::vector<NamedTensor> more, const std::string& prefix = "") {
    for (auto& [name, tensor] : more) tensors.push_back({prefix + name, tensor});
  };
  const auto& optimizers = run.parallel.steps()->optimizers();
  for (std::size_t i = 0; i < optimizers.size(); ++i) {
    tensors.push_back({kOptimizer + std::to_string(i), bytes_of(*optimizers[i])});
  }
  if (auto* reducer = run.parallel.reducer()) add(state_of(reducer->averager(), kFeedback));
  if (run.local != nullptr) {
    add(run.local->state(), kLocal);
    add(model_tensors(run.module), kOwn);
  }
  if (run.scaler != nullptr) {
    const auto [scale, steps] = run.scaler->state();
    const std::vector<double> values{scale, static_cast<double>(steps)};
    tensors.push_back({kScaler, torch::tensor(values, torch::kFloat64)});
  }
  auto generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  tensors.push_back({kRandom, generator.get_state()});
  return tensors;
}

void copy_into(const std::vector<NamedTensor>& tensors, const Tensors& saved,
               const std::string& prefix, const fs::path& path) {
  const torch::NoGradGuard no_grad;
  for (const auto& [name, tensor] : tensors) {
    const auto& value = find(saved, prefix + name, path);
    if (value.sizes() != tensor.sizes()) {
      refuse(fmt::format("'{}' has shape [{}] in {} and [{}] in the model", name,
                         fmt::join(value.sizes(), ", "), path.string(),
                         fmt::join(tensor.sizes(), ", ")));
    }
    tensor.detach().copy_(value);
  }
}

void load_rank_tensors(const RunState& run, const Tensors& saved, const fs::path& path) {
  load_optimizers(run, saved, path);
  if (auto* reducer = run.parallel.reducer()) load_state(reducer->averager(), saved, kFeedback);
  if (run.local != nullptr) {
    copy_into(model_tensors(run.module), saved, kOwn, path);
    run.local->load_state(without_prefix(saved, kLocal));
  }
  if (run.scaler != nullptr) {
    const auto* values = find(saved, kScaler, path).data_ptr<double>();
    run.scaler->load({values[0], static_cast<std::int64_t>(values[1])});
  }
  auto generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  generator.set_state(find(saved, kRandom, path));
}

}  // namespace gradwire
