#pragma once

#include <chrono>
#include <optional>
#include <string>

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "gradwire/bootstrap/job.h"
#include "gradwire/comm/communicator.h"

namespace gradwire {

/// pg_options of c10d's init_process_group and new_group. Options that are not set come from the
/// environment, as for every job: GRADWIRE_INTERFACE, GRADWIRE_SECRET, GRADWIRE_PORT,
/// GRADWIRE_SHARED_MEMORY, GRADWIRE_ENCRYPTION, GRADWIRE_ALGORITHM, GRADWIRE_TOPOLOGY.
struct GroupOptions final : c10d::Backend::Options {
  explicit GroupOptions(std::chrono::milliseconds operation_timeout = kBackendDefaultTimeout)
      : c10d::Backend::Options("gradwire", operation_timeout) {}

  /// Returns a copy of all options, for a group that is split off. Overrides Options' from PyTorch
  /// 2.14 on.
  virtual c10::intrusive_ptr<c10d::Backend::Options> clone() const {
    return c10::make_intrusive<GroupOptions>(*this);
  }

  std::optional<std::string> interface;  ///< Comma-separated names or prefixes; one rail each.
  std::optional<std::string> secret;     ///< Shared secret that authenticates every connection.
  std::optional<int> port;               ///< Listening port of every rank; 0: free ports.
  std::optional<bool> shared_memory;     ///< Use shared memory between ranks on one machine.
  std::optional<bool> encryption;        ///< TLS 1.3 between hosts; requires a secret.
  /// Default gradient codec of communication hooks: "int8", "top_k:0.01", ...
  std::string codec = "none";
  /// The backend between ranks of one host (HybridProcessGroup); empty: none. The creator of the
  /// group makes it.
  std::string inside;
  /// All other options. `timeout` applies to operations, and to rendezvous if it is longer than its
  /// own; the scope is the group's name.
  CommunicatorOptions communicator;
};

/// Returns the Job of rank `rank` in a group of `size`. Unless an interface is set, it uses the
/// route to the host of `store` if that is a TCPStore or GradwireStore, else to MASTER_ADDR, else
/// the loopback. Throws Exception(invalid_argument) for an invalid variable.
bootstrap::Job job_of_group(
    c10d::Store& store, Rank rank, int size, const GroupOptions& options,
    const bootstrap::Environment& environment = bootstrap::process_environment());

/// Warns on rank 0, off the loopback, if a group without a secret would put its generated secret
/// into a TCPStore, which unauthenticated peers can read. Throws as job_of_group() does.
void warn_of_open_store(c10d::Store& store, Rank rank, int size, const GroupOptions& options);

/// Connects to the other members of the group through a rendezvous in `store`. Every group needs a
/// separate store or prefix. Blocks until all members are connected. Throws as
/// Communicator::connect does.
std::shared_ptr<Communicator> connect_group(const c10::intrusive_ptr<c10d::Store>& store, Rank rank,
                                            int size, const GroupOptions& options);

}  // namespace gradwire
