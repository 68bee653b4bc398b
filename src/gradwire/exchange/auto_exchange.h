#pragma once

#include <memory>
#include <string>

#include "gradwire/exchange/compressed_exchange.h"

namespace gradwire {

/// Uses the codec of `exchange` if it makes steps shorter, and no codec otherwise. It times steps
/// from one end_pass() to the next, alternating with and without the codec. A trial starts when the
/// codec's warm-up ends and again every ExchangeOptions::steps_between_trials steps. The ranks'
/// times are averaged by an all-reduce, so that all ranks make the same decision. The codec must be
/// faster by more than 1 % to be chosen, because it costs accuracy. When the codec is switched off,
/// its error-feedback residual is added to the gradients.
///
/// `codec`: its name, for describe(). The state is that of `exchange`; a resumed run repeats the
/// trial.
std::unique_ptr<Exchange> auto_exchange(std::shared_ptr<Communicator> communicator,
                                        std::unique_ptr<CompressedExchange> exchange,
                                        std::string codec, const ExchangeOptions& options);

/// Number of steps until the first decision.
int steps_until_decided(const ExchangeOptions& options);

}  // namespace gradwire
