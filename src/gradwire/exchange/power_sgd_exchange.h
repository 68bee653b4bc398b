#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "gradwire/exchange/compressed_exchange.h"

namespace gradwire {

/// Averages matrices as products of two factors with `rank` columns (PowerSgdMatrix); each step
/// starts with the Q of the step before. A unit takes two all-reduces: of the P of all its
/// matrices, together with the tensors that are not matrices or would gain nothing and are
/// uncompressed; and of all Q. Each matrix has memory for its error-feedback residual.
///
/// For the first ExchangeOptions::warmup_steps steps gradients are sent uncompressed. State:
/// "PARAMETER.sent" (the residual), "PARAMETER.q" and "codec.step" (int64: steps so far).
std::unique_ptr<CompressedExchange> power_sgd_exchange(std::unique_ptr<Exchange> plain,
                                                       std::shared_ptr<Communicator> communicator,
                                                       std::vector<UnitShape> units,
                                                       std::size_t rank,
                                                       const ExchangeOptions& options);

}  // namespace gradwire
