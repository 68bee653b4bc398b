#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "gradwire/bootstrap/job.h"
#include "gradwire/mpi/driver.h"
#include "gradwire/mpi/reductions.h"

namespace gradwire::mpi {

/// MPI in this process, for all communicators: it can be initialized only once. At exit it is
/// finalized; with an exit status other than 0 all processes of the job end instead, since the
/// others might wait for this one. A process that ends in order after a signal (status 128 + N,
/// after the last communicator was closed in order) is finalized too: the others end likewise, and
/// may have more to say.
class Process {
 public:
  /// Loads the library for the MPI whose launcher started this process (GRADWIRE_MPI: "openmpi" or
  /// "mpich", if it does not say), from the folder of this code, or GRADWIRE_MPI_PLUGIN, a file or
  /// a folder, and initializes MPI. Throws Exception: unsupported if there is no such library;
  /// system.
  static std::shared_ptr<Process> start(const bootstrap::Environment& environment,
                                        std::shared_ptr<const Clock> clock);
  Process(const gradwire_mpi& mpi, Rank rank, int size, std::shared_ptr<const Clock> clock);

  /// Throws Exception(invalid_argument) unless the job has the ranks that MPI knows.
  void check_job(const bootstrap::Job& job) const;

  /// Called by each engine, when it begins and ends.
  void engine_opened() { ++engines_; }
  void engine_closed_in_order() { --engines_; }
  bool has_engines() const { return engines_ > 0; }

  Driver& driver() { return driver_; }
  Rank rank() const { return rank_; }
  int size() const { return size_; }
  const Reductions& reductions() const { return reductions_; }
  gradwire_mpi_handle world() const { return world_; }
  /// "Open MPI v4.1.4, ...".
  const std::string& version() const { return version_; }

 private:
  Rank rank_;
  int size_;
  Reductions reductions_;
  Driver driver_;
  gradwire_mpi_handle world_ = 0;
  std::string version_;
  std::atomic<int> engines_ = 0;  ///< Those that have not been closed in order.
};

}  // namespace gradwire::mpi
