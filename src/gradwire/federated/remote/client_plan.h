#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "gradwire/base/error.h"
#include "gradwire/federated/partial.h"
#include "gradwire/federated/quantizer_options.h"
#include "gradwire/federated/secure/public_key.h"

namespace gradwire::federated {

/// A round's plan, as the server sends it to clients: what follows is the same for all of them.
struct ClientPlan {
  std::int64_t epochs = 1;
  std::int64_t batch_size = 0;   ///< 0: all samples.
  std::string optimizer = "{}";  ///< JSON of the local optimizer: name, learning_rate, ...
  double proximal = 0;           ///< mu of FedProx.
  std::uint64_t order_seed = 0;  ///< LocalPlan::seed.
  Partial partial = Partial::count;
  QuantizerOptions update;
  double range = 1;                 ///< The largest element of an update.
  std::uint64_t round_seed = 0;     ///< For signs and mask.
  std::uint64_t rounding_seed = 0;  ///< UpdateRules::seed.
  bool is_bf16 = false;             ///< Elements of the model as they are sent.
  /// Draws of the round with Selection::proportional: an update weighs 1 to as many. 0: it weighs
  /// as many as its client has samples.
  std::int64_t draws = 0;
  Digest model{};  ///< digest_of_model().

  bool operator==(const ClientPlan&) const = default;
};

std::string to_json(const ClientPlan& plan);
/// Inverse of to_json(). Fails with invalid_argument.
Result<ClientPlan> client_plan_from_json(std::string_view text);

/// The server's words before the first round.
struct ModelDescription {
  struct Shape {
    std::string name;
    std::vector<std::int64_t> sizes;
    bool operator==(const Shape&) const = default;
  };
  std::vector<Shape> tensors;        ///< In the order of the model's elements.
  std::string configuration = "{}";  ///< JSON for programs: model and data.

  bool operator==(const ModelDescription&) const = default;
};

std::string to_json(const ModelDescription& description);
/// Inverse of to_json(). Fails with invalid_argument.
Result<ModelDescription> model_description_from_json(std::string_view text);

}  // namespace gradwire::federated
