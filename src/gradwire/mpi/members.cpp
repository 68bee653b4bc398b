#include "gradwire/mpi/members.h"

#include <algorithm>
#include <iterator>
#include <sstream>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "gradwire/bootstrap/start.h"

namespace gradwire::mpi {
namespace {

constexpr const char* kMpi = "mpi";
constexpr std::string_view kMismatch = "mismatch: ";

/// Time between two looks for a mismatch by a rank that waits on its own engine. Longer waits of a
/// TCPStore that time out are logged (torch/store.cpp).
constexpr Duration kVerdictLook = std::chrono::milliseconds(200);

/// Shorter waits do not look for a mismatch.
constexpr Duration kShortWait = std::chrono::milliseconds(50);

/// Time for which rank 0, whose process may serve the store, lets the others read a mismatch.
constexpr Duration kLinger = std::chrono::seconds(2);

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

void tell_engine(bootstrap::Store& store, const std::string& scope, Rank rank,
                 const std::string& engine) {
  write(store, key_of(scope, fmt::to_string(rank)), engine);
}

/// Tells rank 0 that this rank has read the mismatch, and returns it.
Error read_mismatch(bootstrap::Store& store, const std::string& scope, Rank rank,
                    const std::string& verdict) {
  (void)store.set(key_of(scope, fmt::format("seen/{}", rank)), "yes");
  return {ErrorKind::mismatch, verdict.substr(kMismatch.size())};
}

void await_readers(bootstrap::Store& store, const std::string& scope, const bootstrap::Job& job) {
  Duration patience = kLinger;
  for (Rank rank = 1; rank < job.world_size; ++rank) {
    // A rank that does not come has taken the patience with those that do not come after it.
    if (!store.get(key_of(scope, fmt::format("seen/{}", rank)), patience))
      patience = std::chrono::milliseconds(1);
  }
}

}  // namespace

OwnEngineStore::OwnEngineStore(bootstrap::Store& store, std::string scope, Rank rank)
    : store_(store), scope_(std::move(scope)), rank_(rank) {
  tell_engine(store_, scope_, rank_, "own");
}

Result<std::string> OwnEngineStore::get(const std::string& key, Duration timeout) {
  for (Duration left = timeout;; left -= kVerdictLook) {
    auto value = store_.get(key, std::min(left, kVerdictLook));
    if (value || value.error().kind != ErrorKind::timeout || timeout < kShortWait) return value;
    const auto verdict = store_.get(key_of(scope_, "all"), std::chrono::milliseconds(1));
    if (verdict && verdict->starts_with(kMismatch))
      return tl::unexpected<Error>(read_mismatch(store_, scope_, rank_, *verdict));
    if (left <= kVerdictLook) return value;
  }
}

void agree_on_engine(bootstrap::Store& store, const std::string& scope, const bootstrap::Job& job,
                     Duration timeout) {
  tell_engine(store, scope, job.rank, kMpi);
  const std::string all = key_of(scope, "all");
  std::string verdict = kMpi;
  if (job.rank == 0) {
    const std::vector<std::string> engines = gather(store, scope, job, timeout, "");
    const auto other = std::ranges::find_if(engines, [](const auto& one) { return one != kMpi; });
    if (other != engines.end())
      verdict = mismatch_of(static_cast<Rank>(other - engines.begin()), *other);
    write(store, all, verdict);
    if (verdict.starts_with(kMismatch)) await_readers(store, scope, job);
  } else if (const std::string first = value_or_throw(store.get(key_of(scope, "0"), timeout));
             first != kMpi) {
    verdict = mismatch_of(0, first);
    write(store, all, verdict);
  } else {
    verdict = value_or_throw(store.get(all, timeout));
  }
  if (verdict.starts_with(kMismatch))
    throw Exception(read_mismatch(store, scope, job.rank, verdict));
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
