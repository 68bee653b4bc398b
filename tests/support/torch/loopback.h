#pragma once

#include <exception>
#include <functional>
#include <latch>
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
/// have ended. No body starts before all ranks have connected: a rank that aborts the group at once
/// would end the others' connect() too.
inline void run_on_loopback(
    int ranks, const std::function<void(const c10::intrusive_ptr<c10d::ProcessGroup>&)>& body,
    const CommunicatorOptions& options = {}) {
  const auto memory = c10::make_intrusive<c10d::HashStore>();
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(ranks));
  const auto run_or_keep_error = [&](int rank, const std::function<void()>& task) {
    try {
      task();
    } catch (...) {
      errors[static_cast<std::size_t>(rank)] = std::current_exception();
    }
  };
  {
    std::latch connected(ranks);
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < ranks; ++rank) {
      threads.emplace_back([&, rank] {
        c10::intrusive_ptr<c10d::ProcessGroup> group;
        run_or_keep_error(rank, [&] {
          bootstrap::Job job;
          job.rank = job.local_rank = rank;
          job.world_size = job.local_world_size = ranks;
          job.secret = "for this test only";
          group = make_process_group(
              Communicator::connect(job, options, std::make_shared<C10dStore>(memory)), memory);
        });
        connected.arrive_and_wait();
        if (group) run_or_keep_error(rank, [&] { body(group); });
      });
    }
  }
  for (const auto& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

}  // namespace gradwire::test
