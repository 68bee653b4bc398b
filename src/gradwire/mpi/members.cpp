#include "gradwire/mpi/members.h"

#include <algorithm>
#include <iterator>
#include <sstream>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "gradwire/bootstrap/start.h"

namespace gradwire::mpi {
namespace {

constexpr const char* kMpi = "mpi";
constexpr std::string_view kMismatch = "mismatch: ";

std::string key_of(const std::string& scope, const std::string& what) {
  return fmt::format("engine/{}/{}", scope, what);
}

std::string mismatch_of(Rank rank, const std::string& engine) {
  return fmt::format(
      "{}rank {} uses the engine {}, others use mpi: all ranks of a job need the same (--engine, "
      "GRADWIRE_ENGINE, or engine= in Python)",
      kMismatch, rank, engine);
}

void write(bootstrap::Store& store, const std::string& key, const std::string& value) {
  if (const Status written = store.set(key, value); !written) throw Exception(written.error());
}

/// Rank 0 gathers what all ranks write under `what`/RANK.
std::vector<std::string> gather(bootstrap::Store& store, const std::string& scope,
                                const bootstrap::Job& job, Duration timeout,
                                const std::string& what) {
  std::vector<std::string> values;
  std::vector<Rank> missing;
  for (Rank rank = 0; rank < job.world_size; ++rank) {
    // All of them have come by the time that the first missing one is given up.
    const auto value = store.get(key_of(scope, fmt::format("{}{}", what, rank)),
                                 missing.empty() ? timeout : std::chrono::milliseconds(10));
    if (!value && value.error().kind == ErrorKind::timeout) {
      missing.push_back(rank);
    } else {
      values.push_back(value_or_throw(value));
    }
  }
  if (missing.empty()) return values;
  throw Exception(bootstrap::missing_error(missing, {}, job.master_address, timeout));
}

}  // namespace

void tell_engine(bootstrap::Store& store, const std::string& scope, Rank rank,
                 const std::string& engine) {
  write(store, key_of(scope, fmt::to_string(rank)), engine);
}

void agree_on_engine(bootstrap::Store& store, const std::string& scope, const bootstrap::Job& job,
                     Duration timeout) {
  tell_engine(store, scope, job.rank, kMpi);
  std::string verdict = kMpi;
  if (job.rank == 0) {
    const std::vector<std::string> engines = gather(store, scope, job, timeout, "");
    const auto other = std::ranges::find_if(engines, [](const auto& one) { return one != kMpi; });
    if (other != engines.end())
      verdict = mismatch_of(static_cast<Rank>(other - engines.begin()), *other);
    write(store, key_of(scope, "all"), verdict);
  } else if (const std::string first = value_or_throw(store.get(key_of(scope, "0"), timeout));
             first != kMpi) {
    verdict = mismatch_of(0, first);
  } else {
    verdict = value_or_throw(store.get(key_of(scope, "all"), timeout));
  }
  if (verdict.starts_with(kMismatch))
    throw Exception(ErrorKind::mismatch, verdict.substr(kMismatch.size()));
}

std::vector<Rank> agree_on_members(bootstrap::Store& store, const std::string& scope,
                                   const bootstrap::Job& job, Rank own, Duration timeout) {
  write(store, key_of(scope, fmt::format("member/{}", job.rank)), fmt::to_string(own));
  const std::string members = key_of(scope, "members");
  if (job.rank == 0) {
    write(store, members,
          fmt::format("{}", fmt::join(gather(store, scope, job, timeout, "member/"), " ")));
  }
  std::istringstream stream(value_or_throw(store.get(members, timeout)));
  return {std::istream_iterator<Rank>(stream), {}};
}

}  // namespace gradwire::mpi
