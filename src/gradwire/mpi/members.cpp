#include "gradwire/mpi/members.h"

#include <iterator>
#include <sstream>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "gradwire/bootstrap/start.h"

namespace gradwire::mpi {
namespace {

constexpr std::string_view kMpi = "mpi ";  ///< And the rank in MPI_COMM_WORLD.
constexpr std::string_view kMismatch = "mismatch: ";

std::string key_of(const std::string& scope, const std::string& what) {
  return fmt::format("engine/{}/{}", scope, what);
}

std::string mismatch_of(Rank rank, const std::string& told) {
  return fmt::format(
      "{}rank {} uses the engine {}, others use mpi: all ranks of a job need the same (--engine, "
      "GRADWIRE_ENGINE, or engine= in Python)",
      kMismatch, rank, told);
}

/// Rank 0's verdict.
std::string members_of(bootstrap::Store& store, const std::string& scope, const bootstrap::Job& job,
                       Duration timeout) {
  std::vector<std::string> members;
  std::vector<Rank> missing;
  for (Rank rank = 0; rank < job.world_size; ++rank) {
    // All of them have come by the time that the first missing one is given up.
    const auto told = store.get(key_of(scope, fmt::to_string(rank)),
                                missing.empty() ? timeout : std::chrono::milliseconds(10));
    if (!told && told.error().kind == ErrorKind::timeout) {
      missing.push_back(rank);
    } else if (const std::string text = value_or_throw(told); text.starts_with(kMpi)) {
      members.push_back(text.substr(kMpi.size()));
    } else {
      return mismatch_of(rank, text);
    }
  }
  if (missing.empty()) return fmt::format("{}", fmt::join(members, " "));
  throw Exception(bootstrap::missing_error(missing, {}, job.master_address, timeout));
}

}  // namespace

void tell_engine(bootstrap::Store& store, const std::string& scope, Rank rank,
                 const std::string& engine) {
  const Status told = store.set(key_of(scope, fmt::to_string(rank)), engine);
  if (!told) throw Exception(told.error());
}

std::vector<Rank> agree_on_members(bootstrap::Store& store, const std::string& scope,
                                   const bootstrap::Job& job, Rank own, Duration timeout) {
  tell_engine(store, scope, job.rank, fmt::format("{}{}", kMpi, own));
  std::string verdict;
  if (job.rank == 0) {
    verdict = members_of(store, scope, job, timeout);
    if (const Status said = store.set(key_of(scope, "members"), verdict); !said)
      throw Exception(said.error());
  } else if (const std::string first = value_or_throw(store.get(key_of(scope, "0"), timeout));
             !first.starts_with(kMpi)) {
    verdict = mismatch_of(0, first);
  } else {
    verdict = value_or_throw(store.get(key_of(scope, "members"), timeout));
  }
  if (verdict.starts_with(kMismatch))
    throw Exception(ErrorKind::mismatch, verdict.substr(kMismatch.size()));
  std::istringstream stream(verdict);
  return {std::istream_iterator<Rank>(stream), {}};
}

}  // namespace gradwire::mpi
