#pragma once

#include <memory>

#include "gradwire/exchange/exchange.h"
#include "gradwire/trace/trace.h"

namespace gradwire::exchange {

/// Decorator that records operations in a trace: each as communication from its start until the
/// result is in place ("bucket 3" of an all-reduce, "reduce 3", "gather 3"), and each wait() that
/// blocks as a wait. With a null `recorder` it returns `exchange` itself. `recorder` must outlive
/// it and all operations in flight.
std::unique_ptr<Exchange> traced_exchange(std::unique_ptr<Exchange> exchange,
                                          TraceRecorder* recorder);

}  // namespace gradwire::exchange
