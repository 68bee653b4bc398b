#pragma once

#include <functional>
#include <memory>

#include "gradwire/comm/job.h"
#include "gradwire/comm/store.h"

namespace gradwire {

/// Opens the store that a job's launcher brought, or returns null if the job uses our own.
using StoreOpener = std::function<std::shared_ptr<Store>(const Job&)>;

/// `gradwire bench`, the ranks finding each other by the store that `open_store` gives.
int bench_with_store(int argc, char** argv, const StoreOpener& open_store);

/// `gradwire bench step` (bench_step_command.cpp), of which argv[0] is "step".
int bench_step_with_store(int argc, char** argv, const StoreOpener& open_store);

}  // namespace gradwire
