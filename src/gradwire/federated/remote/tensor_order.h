#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "gradwire/federated/remote/client_plan.h"

namespace gradwire::federated {

/// Between the server's order of a model's elements and a module's own. A value.
class TensorOrder {
 public:
  TensorOrder() = default;
  /// `own`: the module's trainable parameters and floating buffers, in its order. Throws
  /// Exception(invalid_argument), with the name, unless both have the same tensors.
  TensorOrder(std::span<const ModelDescription::Shape> own, const ModelDescription& server);

  std::size_t elements() const { return elements_; }
  std::vector<float> to_own(std::span<const float> server) const;
  std::vector<float> to_server(std::span<const float> own) const;

 private:
  struct Run {
    std::size_t own = 0, server = 0, count = 0;
  };
  std::vector<Run> runs_;
  std::size_t elements_ = 0;
};

}  // namespace gradwire::federated
