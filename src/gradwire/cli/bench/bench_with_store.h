#pragma once

#include <functional>
#include <memory>

#include "gradwire/bootstrap/job.h"
#include "gradwire/bootstrap/store.h"

namespace gradwire {

/// Opens the launcher's store of a job; returns null if the job uses gradwire's own.
using StoreOpener = std::function<std::shared_ptr<Store>(const Job&)>;

/// `gradwire bench`, with the store of `open_store` for the rendezvous.
int bench_with_store(int argc, char** argv, const StoreOpener& open_store);

/// `gradwire bench step` (bench_step_command.cpp); argv[0] is "step".
int bench_step_with_store(int argc, char** argv, const StoreOpener& open_store);

}  // namespace gradwire
