#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "gradwire/base/types.h"
#include "gradwire/bootstrap/store/store_client.h"
#include "gradwire/net/abort_message.h"

namespace gradwire::bootstrap {

/// The start of a job, as its store server sees it: a state machine without sockets or threads. It
/// answers the requests `exchange`, `complete` and `fail` of the ranks' clients.
///
/// A rank that leaves before all have joined may be started again. Once all have sent their
/// endpoints, the start is sealed: it succeeds when all ranks have completed it, or fails on all of
/// them. The first rank that reports an error, leaves, or whose host falls silent is named to all
/// others. Two live processes of one rank, or a different world size, fail the start at any time.
class StartState {
 public:
  /// Ranks with another `job_id` (Job::job_id) are rejected.
  StartState(const Clock& clock, int world_size, std::string job_id);

  /// Handles a request that the client has sent; it is its pending request.
  void on_request(StoreClient& client);

  /// Answers the client's pending request, whose time is over.
  void on_timeout(StoreClient& client);

  /// The connection of the client has ended, as has its process.
  void on_end(const StoreClient& client);

  /// Fails the start. All ranks get the first reason, including those that connect later.
  void fail(const net::AbortMessage& why);

  /// A message of the client was corrupted on its way, so the ranks cannot trust their network.
  void on_corruption(StoreClient& client);

  /// Returns true if the start is over for the rank: another start of it is another server's.
  bool is_over_for(Rank rank) const;

  /// Ranks that have not been told yet that the start has failed.
  int unnotified() const;

 private:
  enum class Phase : std::uint8_t { gathering, sealed, complete, failed };

  /// A process that has joined; none while `client` is null.
  struct Member {
    StoreClient* client = nullptr;
    std::string endpoint;
  };

  bool is_rank(Rank rank) const { return rank >= 0 && rank < world_size_; }
  Member& member_of(const StoreClient& client) {
    return members_[static_cast<std::size_t>(client.claims.from)];
  }
  void exchange(StoreClient& client);
  bool replace(StoreClient& client, StoreClient& before);
  bool is_duplicate(Rank rank);
  void seal_if_all_wait();
  void complete(StoreClient& client);
  void fail_as(StoreClient& client);
  void reject_other_job(StoreClient& client);
  void reject_world_size(StoreClient& client);
  void tell(StoreClient& client);
  MissingRanks missing_ranks() const;
  std::string incomplete_ranks() const;

  const Clock& clock_;
  int world_size_;
  std::string job_id_;
  Phase phase_ = Phase::gathering;
  std::vector<Member> members_;  ///< By rank.
  std::map<Rank, std::string>
      ended_;                     ///< Names of processes that ended before the start was sealed.
  std::map<Rank, Time> doubted_;  ///< Time since which two processes have claimed that rank.
  std::string failure_;           ///< encode_abort(), once the start has failed.
  std::set<Rank> notified_;       ///< Ranks that know of the failure, or have exited.
};

}  // namespace gradwire::bootstrap
