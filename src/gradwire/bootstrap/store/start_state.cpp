#include "gradwire/bootstrap/store/start_state.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "gradwire/base/log.h"
#include "gradwire/bootstrap/mesh/rank_endpoint.h"

namespace gradwire::bootstrap {
namespace {

/// If two live processes claim the same rank, the first may still be exiting for this time.
constexpr Duration kDuplicateGrace = std::chrono::milliseconds(300);

std::string encoded(const net::AbortMessage& why) {
  const auto bytes = net::encode_abort(why);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

void tell_failure(StoreClient& client, const std::string& why) {
  client.notified = true;
  client.respond({.answer = StoreAnswer::failed, .value = why});
}

}  // namespace

StartState::StartState(const Clock& clock, int world_size, std::string job_id)
    : clock_(clock),
      world_size_(world_size),
      job_id_(std::move(job_id)),
      members_(static_cast<std::size_t>(world_size)) {}

void StartState::on_request(StoreClient& client) {
  switch (client.pending->operation) {
    case StoreOperation::exchange:
      return exchange(client);
    case StoreOperation::complete:
      return complete(client);
    default:
      return fail_as(client);
  }
}

void StartState::exchange(StoreClient& client) {
  const auto endpoint = decode_rank_endpoint(client.pending->value);
  if (!endpoint) {
    return client.respond({.answer = StoreAnswer::refused, .value = endpoint.error().message});
  }
  client.host = endpoint->host;
  net::keep_alive(client.stream.socket(), kStoreDeadAfter);
  if (client.pending->key != job_id_) return reject_other_job(client);
  if (client.claims.world_size != world_size_) return reject_world_size(client);
  if (phase_ == Phase::failed) return tell(client);
  if (phase_ == Phase::complete) return client.respond({.answer = StoreAnswer::later});
  Member& member = member_of(client);
  if (member.client != nullptr && member.client != &client && !replace(client, *member.client)) {
    return;
  }
  doubted_.erase(client.claims.from);
  ended_.erase(client.claims.from);
  member = {.client = &client, .endpoint = client.pending->value};
  seal_if_all_wait();
}

/// The rank's earlier process may have been restarted, or have given up and connected again.
/// Returns true if this client takes its place; the client is answered otherwise.
bool StartState::replace(StoreClient& client, StoreClient& before) {
  if (before.has_ended()) {
    before.gone = true;
    on_end(before);
    if (phase_ == Phase::failed) tell(client);
    return phase_ != Phase::failed;
  }
  if (!is_duplicate(client.claims.from)) {
    client.respond({.answer = StoreAnswer::later});
    return false;
  }
  fail({ErrorKind::invalid_argument, -1,
        fmt::format("another process has already joined as rank {}: {} and {}: give each process "
                    "its own RANK",
                    client.claims.from, before.name(), client.name())});
  tell(client);
  return false;
}

bool StartState::is_duplicate(Rank rank) {
  const Time now = clock_.now();
  return now - doubted_.try_emplace(rank, now).first->second >= kDuplicateGrace;
}

void StartState::seal_if_all_wait() {
  const bool all = std::ranges::all_of(members_, [](const Member& member) {
    return member.client != nullptr && member.client->waits_for(StoreOperation::exchange);
  });
  // The server may not have read yet that a process has ended.
  if (!all || std::ranges::any_of(members_, &StoreClient::has_ended, &Member::client)) return;
  std::vector<std::string> endpoints;
  for (Member& member : members_) endpoints.push_back(std::move(member.endpoint));
  const StoreResponse all_endpoints{.value = encode_endpoints(endpoints)};
  if (all_endpoints.value.size() > kMaxStoreValueBytes) {
    return fail({ErrorKind::invalid_argument, -1,
                 fmt::format("the endpoints of all ranks have {} MiB, more than the {} MiB of a "
                             "message: a rank has sent an invalid one",
                             all_endpoints.value.size() >> 20, kMaxStoreValueBytes >> 20)});
  }
  phase_ = Phase::sealed;
  for (const Member& member : members_) member.client->respond(all_endpoints);
}

void StartState::complete(StoreClient& client) {
  const auto waits = [](const Member& member) {
    return member.client != nullptr && member.client->waits_for(StoreOperation::complete);
  };
  if (!std::ranges::all_of(members_, waits)) return;
  phase_ = Phase::complete;
  for (const Member& member : members_) member.client->respond({});
  if (client.pending) client.gone = true;  // It is no rank of this job.
}

void StartState::fail_as(StoreClient& client) {
  const std::string& value = client.pending->value;
  net::AbortMessage why = net::decode_abort(std::as_bytes(std::span(value)), client.claims.from);
  why.origin = client.claims.from;
  why.text = fmt::format("{} failed while the job started: {}", client.name(), why.text);
  fail(why);
  tell(client);
}

void StartState::on_corruption(StoreClient& client) {
  if (phase_ == Phase::complete) return;
  fail({ErrorKind::corrupted, client.claims.from,
        fmt::format("data from {} to the store of rank 0 was corrupted in transit (wrong "
                    "authentication code): check the link between these hosts",
                    client.name())});
  tell(client);
}

/// Rejects this client only: jobs that share a secret must not end each other.
void StartState::reject_other_job(StoreClient& client) {
  const auto words = [](const std::string& id) {
    return id.empty() ? std::string("no job id") : fmt::format("job id \"{}\"", id);
  };
  const std::string text = fmt::format(
      "{} has {}, but the rank 0 that listens there has {}: give each job its own port, and all "
      "ranks of a job the same GRADWIRE_JOB_ID",
      client.name(), words(client.pending->key), words(job_id_));
  log_warning("refused a rank of another job: {}", text);
  tell_failure(client, encoded({ErrorKind::mismatch, client.claims.from, text}));
}

void StartState::reject_world_size(StoreClient& client) {
  fail({ErrorKind::mismatch, -1,
        fmt::format("{} was started with a world size of {}, rank 0 with {}: give all ranks the "
                    "same WORLD_SIZE",
                    client.name(), client.claims.world_size, world_size_)});
  tell(client);
}

void StartState::fail(const net::AbortMessage& why) {
  if (phase_ != Phase::failed) failure_ = encoded(why);
  phase_ = Phase::failed;
  for (const Member& member : members_) {
    if (member.client != nullptr) tell(*member.client);
  }
}

void StartState::tell(StoreClient& client) {
  if (client.notified || client.gone) return;
  if (is_rank(client.claims.from)) notified_.insert(client.claims.from);
  tell_failure(client, failure_);
}

void StartState::on_timeout(StoreClient& client) {
  const bool exchanges = client.waits_for(StoreOperation::exchange);
  client.respond({.answer = StoreAnswer::not_there,
                  .value = exchanges ? encode(missing_ranks()) : incomplete_ranks()});
}

MissingRanks StartState::missing_ranks() const {
  MissingRanks missing;
  for (Rank rank = 0; rank < world_size_; ++rank) {
    if (members_[static_cast<std::size_t>(rank)].client != nullptr) continue;
    missing.ranks.push_back(rank);
    if (const auto last = ended_.find(rank); last != ended_.end()) {
      missing.ended.push_back(last->second);
    }
  }
  return missing;
}

std::string StartState::incomplete_ranks() const {
  std::vector<std::string> names;
  for (const Member& member : members_) {
    if (member.client == nullptr || member.client->waits_for(StoreOperation::complete)) continue;
    names.push_back(member.client->name());
  }
  return fmt::format("{}: not connected to all others in time", fmt::join(names, ", "));
}

void StartState::on_end(const StoreClient& client) {
  const Rank rank = client.claims.from;
  if (!is_rank(rank)) return;
  Member& member = member_of(client);
  if (member.client != nullptr && member.client != &client) return;  // Another process of the rank.
  member = {};
  if (client.notified && phase_ == Phase::gathering) return;
  if (phase_ == Phase::gathering) {
    log_warning("{} has ended before all ranks had joined; it may be started again", client.name());
    ended_[rank] = client.name();
  }
  if (phase_ == Phase::sealed || phase_ == Phase::failed) notified_.insert(rank);
  if (phase_ != Phase::sealed) return;
  fail({ErrorKind::disconnected, rank,
        fmt::format("{} has ended while the ranks connected to each other: it was killed or "
                    "crashed, or its host is down",
                    client.name())});
}

bool StartState::is_over_for(Rank rank) const {
  return phase_ == Phase::complete || (phase_ == Phase::failed && notified_.contains(rank));
}

int StartState::unnotified() const {
  return phase_ == Phase::failed ? world_size_ - static_cast<int>(notified_.size()) : 0;
}

}  // namespace gradwire::bootstrap
