#pragma once

#include <string>

namespace gradwire::engine {

/// The capabilities of an engine.
struct EngineTraits {
  std::string name = "own";
  /// Algorithms are chosen by size and topology, or by name. Otherwise the engine has its own.
  bool has_algorithms = true;
  bool counts_bytes = true;    ///< It knows how many bytes this rank has sent.
  bool has_priorities = true;  ///< OperationOptions::priority has an effect.
  bool has_pairs = true;       ///< FailureDomain::pair.
  bool encrypts = true;        ///< Job::encryption.
  /// An error, a timeout or abort() fails the operations, and the processes go on. Otherwise it
  /// ends the processes of the job.
  bool fails_alone = true;
};

}  // namespace gradwire::engine
