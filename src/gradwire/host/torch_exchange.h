#pragma once

#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include <torch/types.h>

#include "gradwire/exchange/exchange.h"
#include "gradwire/exchange/make_exchange.h"
#include "gradwire/host/group.h"
#include "gradwire/torch/tensor_span.h"
#include "gradwire/trace/trace.h"

namespace gradwire {

/// Returns an exchange of these units over any c10d group; `tensors[i]` is on the device of unit i.
/// For gradwire groups it is make_exchange(), staged through host memory for units on an
/// accelerator. It reserves lanes of the communicator: all ranks must make their exchanges in the
/// same order. For groups in two levels it is hybrid_exchange(), for those of other backends
/// group_exchange(); with world size 1, local_exchange().
/// `trace` records operations and waits; may be null. Throws Exception on behalf of `who`:
/// invalid_argument as make_exchange() does; unsupported for a codec on another backend's group, or
/// if only some units are on an accelerator.
std::unique_ptr<exchange::Exchange> torch_exchange(std::string_view who, const ProcessGroup& group,
                                                   const std::vector<torch::Tensor>& tensors,
                                                   std::vector<exchange::UnitShape> units,
                                                   const exchange::ExchangeOptions& options,
                                                   TraceRecorder* trace);

/// Decorator for units in an accelerator's memory: each is copied to pinned host memory in stream
/// order, exchanged there by `exchange`, and copied back. A wait makes the caller's current stream
/// wait for the result. Reductions and gathers are separate sequences.
std::unique_ptr<exchange::Exchange> staged_exchange(Rank rank,
                                                    std::unique_ptr<exchange::Exchange> exchange,
                                                    std::vector<c10::Device> devices);

/// Exchanges units with the collectives of a c10d group, all in one order. If the backend cannot
/// average (can_average()), reductions are sums. `sharded`: finds out, with a collective of one
/// element, whether it has reduce-scatter and all-gather of flat tensors; without them, an
/// all-reduce and an all-gather of lists take their place.
std::unique_ptr<exchange::Exchange> group_exchange(ProcessGroup group,
                                                   std::vector<c10::Device> devices, bool sharded);

}  // namespace gradwire
