#pragma once

#include <functional>
#include <string>

#include "gradwire/host/group.h"

namespace gradwire::test {

/// Runs `body` once per rank, each on its own thread with one torch thread, and each with its
/// member of one process group. The group's backend ("threads") sums in rank order, in memory. It
/// implements only what c10d::Backend requires, so that code that runs on it runs on any group.
/// Rethrows the first rank's exception after all have ended. A rank that throws aborts the group,
/// so that the others do not wait for it.
void run_on_threads(int ranks, const std::function<void(const ProcessGroup&)>& body);

/// Returns each rank's error message ("" if none), for tests that expect errors.
std::vector<std::string> errors_on_threads(int ranks,
                                           const std::function<void(const ProcessGroup&)>& body);

}  // namespace gradwire::test
