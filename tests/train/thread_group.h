#pragma once

#include <functional>
#include <string>

#include "gradwire/train/group.h"

namespace gradwire::test {

/// Runs `body` once for each rank, each on a thread of its own with one torch thread, and each with
/// its member of one process group. The group's backend ("threads") sums in the order of ranks, in
/// memory, and can nothing that c10d::Backend does not ask for: whatever runs on it runs on any
/// group. Rethrows the first rank's exception after all have ended. A rank that throws aborts the
/// group, so that the others do not wait for it.
void run_on_threads(int ranks, const std::function<void(const ProcessGroup&)>& body);

/// What each rank threw ("" if nothing), for tests that expect errors.
std::vector<std::string> errors_on_threads(int ranks,
                                           const std::function<void(const ProcessGroup&)>& body);

}  // namespace gradwire::test
