#pragma once

#include <chrono>
#include <optional>
#include <string>

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "gradwire/comm/communicator.h"
#include "gradwire/comm/job.h"

namespace gradwire {

/// What c10d's init_process_group and new_group take as pg_options. What is left out comes from the
/// environment, as for every job: GRADWIRE_INTERFACE, GRADWIRE_SECRET, GRADWIRE_PORT,
/// GRADWIRE_SHARED_MEMORY, GRADWIRE_ENCRYPTION, GRADWIRE_ALGORITHM, GRADWIRE_TOPOLOGY.
struct GroupOptions final : c10d::Backend::Options {
  explicit GroupOptions(std::chrono::milliseconds operation_timeout = kBackendDefaultTimeout)
      : c10d::Backend::Options("gradwire", operation_timeout) {}

  std::optional<std::string> interface;  ///< Names or prefixes, a comma list: one rail each.
  std::optional<std::string> secret;     ///< Every connection proves that it knows it.
  std::optional<int> port;               ///< What every rank listens on; 0: free ports.
  std::optional<bool> shared_memory;     ///< Ranks of one machine talk through it.
  std::optional<bool> encryption;        ///< TLS 1.3 between hosts; it needs a secret.
  /// What gradients travel as where a hook does not say: "int8", "top_k:0.01", ...
  std::string codec = "none";
  /// All else. Operations have `timeout`, meeting has that too if it is longer than this one's; the
  /// scope is the group's name.
  CommunicatorOptions communicator;
};

/// Who rank `rank` of a group of `size` is, and how it reaches the others: over the route to the
/// host of the TCPStore that `store` is, if it is one, else to MASTER_ADDR, else the loopback;
/// unless an interface is chosen. Throws Exception(invalid_argument) for a wrong variable.
Job job_of_group(c10d::Store& store, Rank rank, int size, const GroupOptions& options,
                 const Environment& environment = process_environment());

/// Says, on rank 0 and off the loopback, that the secret of a group without one will lie in a
/// TCPStore, for anybody to read. Throws as job_of_group.
void warn_of_open_store(c10d::Store& store, Rank rank, int size, const GroupOptions& options);

/// Connects to the other members of the group, which meet in `store`; every group needs a store, or
/// prefix of one, of its own. Blocks until they have met. Throws as Communicator::connect.
std::shared_ptr<Communicator> connect_group(const c10::intrusive_ptr<c10d::Store>& store, Rank rank,
                                            int size, const GroupOptions& options);

}  // namespace gradwire
