#pragma once

#include <exception>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "gradwire/comm/communicator.h"
#include "gradwire/torch/process_group.h"
#include "gradwire/torch/store.h"

namespace gradwire::test {

/// Runs `body` once per rank, each on a thread with its own Communicator, connected over loopback.
/// Addresses are exchanged in a c10d store in memory. Rethrows the first rank's exception after all
/// have ended.
inline void run_on_loopback(
    int ranks, const std::function<void(const c10::intrusive_ptr<c10d::ProcessGroup>&)>& body,
    const CommunicatorOptions& options = {}) {
  const auto memory = c10::make_intrusive<c10d::HashStore>();
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(ranks));
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < ranks; ++rank) {
      threads.emplace_back([&, rank] {
        try {
          bootstrap::Job job;
          job.rank = job.local_rank = rank;
          job.world_size = job.local_world_size = ranks;
          job.secret = "for this test only";
          body(make_process_group(
              Communicator::connect(job, options, std::make_shared<C10dStore>(memory)), memory));
        } catch (...) {
          errors[static_cast<std::size_t>(rank)] = std::current_exception();
        }
      });
    }
  }
  for (const auto& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

}  // namespace gradwire::test
