#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "gradwire/exchange/make_exchange.h"
#include "gradwire/host/group.h"
#include "gradwire/torch/hybrid_process_group.h"

namespace gradwire {

/// Exchanges units in two levels (hybrid_collectives.h): the ranks of a host reduce and gather, and
/// between hosts there is an exchange of the parts, with the codec of `options`, if any. All
/// operations are in one order. `tensors[i]` is on the device of unit i. Throws Exception on behalf
/// of `who`, as torch_exchange() does; invalid_argument for PowerSGD, whose matrices the parts
/// divide.
std::unique_ptr<exchange::Exchange> hybrid_exchange(std::string_view who,
                                                    c10::intrusive_ptr<HybridProcessGroup> group,
                                                    const std::vector<torch::Tensor>& tensors,
                                                    const std::vector<exchange::UnitShape>& units,
                                                    const exchange::ExchangeOptions& options);

}  // namespace gradwire
