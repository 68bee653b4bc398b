#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <torch/torch.h>

#include "gradwire/federated/computed_updates.h"
#include "gradwire/federated/metrics.h"
#include "gradwire/federated/quantizer_sequence.h"
#include "gradwire/federated/round.h"
#include "gradwire/federated/update_quantizer.h"
#include "gradwire/host/named_tensor.h"
#include "gradwire/train/federated/federation_plan.h"

namespace gradwire {

/// The model of a federated server: parameters, the outer optimizer, and what the next round needs
/// to know of the last. It runs no code of the model. Not thread-safe.
class GlobalModel {
 public:
  /// Copies the tensors. Parameters come first; `averaged` are buffers of floating type, such as
  /// running statistics, to which the mean of the clients' changes is added.
  GlobalModel(const std::vector<NamedTensor>& parameters, const std::vector<NamedTensor>& averaged,
              const GlobalModelOptions& options);

  /// All elements, in order of the tensors.
  std::span<const float> values() const {
    return {flat_.const_data_ptr<float>(), static_cast<std::size_t>(flat_.numel())};
  }
  /// Views of values().
  const std::vector<NamedTensor>& tensors() const { return tensors_; }

  /// How updates of the next round become integers.
  federated::UpdateQuantizer quantizer(std::int64_t round) const {
    return quantizers_->quantizer(round);
  }
  /// RoundPolicy::update_bits of the next round.
  int update_bits() const { return quantizers_->bits(); }
  federated::UpdateRules rules(const federated::UpdateQuantizer& quantizer) const {
    return {&quantizer, options_.normalizes, options_.seed};
  }

  /// Steps with the sum of a round's updates, and the sum of their weights. Returns the sum of the
  /// metrics.
  federated::Metrics apply(const federated::Contribution& sum, std::int64_t weight,
                           const federated::UpdateQuantizer& quantizer);
  /// Counts a committed round of a simulation without training. The values do not change.
  void skip();

  /// Number of rounds that were applied, or skipped.
  std::int64_t version() const { return version_; }

  /// Writes model, optimizer and the numbers that the next round needs; `run` is any JSON text of
  /// the caller, which load() returns. The file appears atomically.
  void save(const std::filesystem::path& path, const std::string& run);
  /// Goes on from save(). `check`, if not null, gets `run` first, and may throw. Throws
  /// Exception(invalid_argument) if the file has another model or optimizer.
  std::string load(const std::filesystem::path& path,
                   const std::function<void(const std::string&)>& check = nullptr);

 private:
  std::vector<NamedTensor> states();

  GlobalModelOptions options_;
  torch::Tensor flat_, gradient_;
  std::vector<NamedTensor> tensors_;
  std::int64_t parameter_elements_ = 0;
  std::size_t parameter_count_ = 0;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
  std::int64_t version_ = 0;
  std::optional<federated::QuantizerSequence> quantizers_;
};

/// The change of a module's parameters since a global model, and back: the elements of its
/// trainable parameters and floating buffers, in GlobalModel's order.
struct FederatedTensors {
  std::vector<NamedTensor> parameters, averaged;
};
/// Those of a module. Throws Exception(unsupported) if a tensor is not of type float32.
FederatedTensors federated_tensors(const torch::nn::Module& module);

}  // namespace gradwire
