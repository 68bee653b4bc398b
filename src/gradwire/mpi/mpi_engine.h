#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "gradwire/base/fork.h"
#include "gradwire/engine/engine.h"
#include "gradwire/mpi/process.h"

namespace gradwire::mpi {

/// Executes the operations of a communicator with MPI, whose own algorithms it uses: requests need
/// no program. Each lane of each group is an MPI communicator. What ends operations elsewhere ends
/// the job here, for MPI cannot give back their memory: abort(), a timeout, an error of MPI, and a
/// close at once. An operation that is refused before MPI is called does not.
class MpiEngine final : public engine::Engine, public std::enable_shared_from_this<MpiEngine> {
 public:
  /// `members`: the ranks in MPI_COMM_WORLD of the communicator's, in order; empty: all, as they
  /// are there. Collective over them. Throws Exception(system).
  MpiEngine(std::shared_ptr<Process> process, const std::vector<Rank>& members);
  ~MpiEngine() override;

  engine::EngineTraits traits() const override;

  void post(engine::OperationRequest request) override;
  void post(std::vector<engine::OperationRequest> requests) override;
  Time now() const override { return driver().now(); }
  void wait(const engine::PostedWork& work, Time until) override;
  void drive_in_background(int change) override { driver().drive_in_background(change); }
  void abort(Error error) override;
  void abort_with(Rank /*peer*/, Error error) override { abort(std::move(error)); }
  void close(Close how, const std::string& failure) override;
  engine::Executor::Traffic traffic() override { return {}; }

  void open_lanes(std::uint16_t group, int first, int count) override;
  std::optional<std::uint16_t> open_group(std::uint16_t parent,
                                          std::span<const Rank> ranks) override;

 private:
  /// Ranks that share a communicator.
  struct Group {
    int size = 1;
    Rank rank = 0;
    std::vector<gradwire_mpi_handle> lanes;  ///< By number; 0 is a lane that is not open.
    /// For messages, each with `tags` of the tags: MPI may allow fewer than gradwire. The first is
    /// that of lane 0.
    std::vector<gradwire_mpi_handle> messages;
    std::int64_t tags = 0;

    gradwire_mpi_handle comm_for(const engine::OperationRequest& request) const;
  };

  Driver& driver() const { return process_->driver(); }
  gradwire_mpi_handle duplicate(gradwire_mpi_handle comm) const;
  gradwire_mpi_handle communicator_of(gradwire_mpi_handle comm, std::span<const Rank> ranks) const;
  void open_messages(Group& group) const;
  std::unique_ptr<Task> task_for(engine::OperationRequest request);
  Group group_of(std::uint16_t number) const;
  void ended(const engine::OperationRequest& request, Rank rank, int ranks, Rank source);
  void publish_ended();

  ForkGuard fork_;
  std::shared_ptr<Process> process_;
  mutable std::mutex mutex_;  ///< Guards `groups_` and the base's ended operations.
  std::map<std::uint16_t, Group> groups_;
  std::atomic<int> in_flight_ = 0;
  std::atomic<bool> is_closed_ = false;
};

/// Returns the call of a request on `lane`, with the counts of its parts in `parts`. `rank`: this
/// one's in the group of `ranks`. Throws Exception(unsupported) for more elements than MPI counts.
gradwire_mpi_call call_for(const engine::OperationRequest& request, gradwire_mpi_handle lane,
                           Rank rank, int ranks, std::vector<int>& parts);

}  // namespace gradwire::mpi
