#include "gradwire/bootstrap/given_store_start.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "gradwire/base/random.h"
#include "gradwire/bootstrap/store/store_protocol.h"
#include "gradwire/net/abort_message.h"

namespace gradwire::bootstrap {
namespace {

/// Endpoints per value; keeps values far below the size limit of stores.
constexpr std::ptrdiff_t kEndpointsPerPart = 32;

/// Timeout for testing whether a key exists. Not zero, which some stores treat as infinite.
constexpr Duration kProbeTimeout = std::chrono::milliseconds(1);

/// Time for which rank 0 waits for one rank's nonce or endpoint before it checks the other ranks.
/// It then checks that nonce again, because a nonce that was answered may be from an earlier
/// rendezvous.
constexpr Duration kJoinInterval = std::chrono::milliseconds(100);

/// Precedes rank 0's error, in place of the endpoints.
constexpr std::string_view kFailed = "failed: ";

std::ptrdiff_t parts_of(std::ptrdiff_t ranks) {
  return (ranks + kEndpointsPerPart - 1) / kEndpointsPerPart;
}

}  // namespace

GivenStoreStart::GivenStoreStart(Store& store, const std::string& scope, const Job& job,
                                 Duration timeout)
    : store_(store), scope_("gradwire/" + scope + "/"), job_(job), timeout_(timeout) {}

std::string GivenStoreStart::nonce_key(Rank rank) const {
  return fmt::format("{}nonce/{}", scope_, rank);
}

std::string GivenStoreStart::generation_key(const std::string& nonce) const {
  return fmt::format("{}generation/{}", scope_, nonce);
}

std::string GivenStoreStart::endpoint_key(const std::string& nonce) const {
  return fmt::format("{}endpoint/{}", prefix_, nonce);
}

std::string GivenStoreStart::part_key(std::ptrdiff_t part) const {
  return fmt::format("{}endpoints/{}", prefix_, part);
}

std::string GivenStoreStart::connected_key(Rank rank) const {
  return fmt::format("{}connected/{}", prefix_, rank);
}

Status GivenStoreStart::join(net::Deadline deadline) {
  nonce_ = random_hex(8);
  GRADWIRE_RETURN_IF_ERROR(store_.set(nonce_key(job_.rank), nonce_));
  if (job_.rank == 0) {
    generation_ = nonce_;
  } else {
    auto generation = store_.get(generation_key(nonce_), deadline.left());
    if (!generation && generation.error().kind == ErrorKind::timeout)
      return tl::unexpected<Error>(missing());
    if (!generation) return tl::unexpected<Error>(generation.error());
    generation_ = std::move(*generation);
  }
  prefix_ = scope_ + generation_ + "/";
  return {};
}

/// Answers a rank's nonce, once it is written, and reads its endpoint, once that is written.
/// Repeats both if the nonce has changed. Fails with timeout.
Status GivenStoreStart::admit(Rank rank, Joiner& joiner, Duration patience) {
  GRADWIRE_ASSIGN_OR_RETURN(
      const auto nonce,
      store_.get(nonce_key(rank), joiner.nonce.empty() ? patience : kProbeTimeout));
  if (nonce != joiner.nonce) {
    GRADWIRE_RETURN_IF_ERROR(store_.set(generation_key(nonce), generation_));
    joiner = {.nonce = nonce, .endpoint = {}};
  }
  GRADWIRE_ASSIGN_OR_RETURN(auto endpoint, store_.get(endpoint_key(joiner.nonce), patience));
  joiner.endpoint = std::move(endpoint);
  return {};
}

/// Returns when every rank has joined. Fails with timeout.
Status GivenStoreStart::admit_all(std::vector<Joiner>& joiners, net::Deadline deadline) {
  for (bool complete = false; !complete;) {
    complete = true;
    Duration patience = std::min(deadline.left(), kJoinInterval);  // With the first missing rank.
    for (Rank rank = 1; rank < job_.world_size; ++rank) {
      Joiner& joiner = joiners[static_cast<std::size_t>(rank)];
      if (!joiner.endpoint.empty()) continue;
      const Status admitted = admit(rank, joiner, std::max(patience, kProbeTimeout));
      if (admitted) continue;
      if (admitted.error().kind != ErrorKind::timeout) return admitted;
      patience = kProbeTimeout;
      complete = false;
    }
    if (!complete && deadline.passed()) return tl::unexpected<Error>(missing());
  }
  return {};
}

/// Returns true if no rank has been restarted in the meantime.
Result<bool> GivenStoreStart::are_unchanged(const std::vector<Joiner>& joiners) {
  for (Rank rank = 1; rank < job_.world_size; ++rank) {
    const auto nonce = store_.get(nonce_key(rank), kProbeTimeout);
    const bool gone = !nonce && nonce.error().kind == ErrorKind::timeout;
    if (!nonce && !gone) return tl::unexpected<Error>(nonce.error());
    if (gone || *nonce != joiners[static_cast<std::size_t>(rank)].nonce) return false;
  }
  return true;
}

Result<std::string> GivenStoreStart::share_secret(net::Deadline deadline) {
  const std::string key = prefix_ + "secret";
  if (job_.rank != 0) return store_.get(key, deadline.left());
  const std::string secret = random_hex(32);
  GRADWIRE_RETURN_IF_ERROR(store_.set(key, secret));
  return secret;
}

Result<std::vector<RankEndpoint>> GivenStoreStart::exchange_endpoints(const RankEndpoint& own,
                                                                      net::Deadline deadline) {
  name_ = own.describe(job_.rank);
  const std::string text = encode(own);
  GRADWIRE_RETURN_IF_ERROR(store_.set(endpoint_key(nonce_), text));
  GRADWIRE_ASSIGN_OR_RETURN(const auto texts,
                            job_.rank == 0 ? gather(text, deadline) : fetch(deadline));
  const auto ranks = static_cast<std::size_t>(job_.world_size);
  GRADWIRE_ASSIGN_OR_RETURN(auto endpoints, decode_all(texts));
  if (endpoints.size() != ranks) {
    return failure(ErrorKind::mismatch,
                   fmt::format("rank {} was started with a world size of {}, rank 0 with {}: give "
                               "every rank the same world size, and new_group() the same ranks",
                               job_.rank, ranks, endpoints.size()));
  }
  const auto last = store_.get(nonce_key(job_.rank), kProbeTimeout);
  // The start may have failed in the meantime.
  if (!last && last.error().kind != ErrorKind::timeout) return tl::unexpected<Error>(last.error());
  if (last && *last != nonce_) {
    return failure(
        ErrorKind::invalid_argument,
        fmt::format("another process has joined as rank {}, which is already {}: give each "
                    "process its own RANK",
                    job_.rank, name_));
  }
  return endpoints;
}

Result<std::vector<std::string>> GivenStoreStart::gather(const std::string& own,
                                                         net::Deadline deadline) {
  std::vector<Joiner> joiners(static_cast<std::size_t>(job_.world_size));
  for (bool same = false; !same;) {
    if (Status all = admit_all(joiners, deadline); !all) {
      // Ends the wait of the other ranks with the same error.
      (void)store_.set(part_key(0), std::string(kFailed) + all.error().message);
      return tl::unexpected<Error>(all.error());
    }
    GRADWIRE_ASSIGN_OR_RETURN(same, are_unchanged(joiners));
    if (!same) joiners.assign(joiners.size(), {});
  }
  std::vector<std::string> endpoints = {own};
  for (std::size_t i = 1; i < joiners.size(); ++i)
    endpoints.push_back(std::move(joiners[i].endpoint));
  GRADWIRE_RETURN_IF_ERROR(publish(endpoints));
  return endpoints;
}

Status GivenStoreStart::publish(const std::vector<std::string>& endpoints) {
  for (std::ptrdiff_t part = 0; part < parts_of(std::ssize(endpoints)); ++part) {
    const auto begin = endpoints.begin() + part * kEndpointsPerPart;
    const auto size = std::min(endpoints.end() - begin, kEndpointsPerPart);
    GRADWIRE_RETURN_IF_ERROR(store_.set(part_key(part), encode_endpoints({begin, begin + size})));
  }
  return {};
}

Result<std::vector<std::string>> GivenStoreStart::fetch(net::Deadline deadline) {
  std::vector<std::string> endpoints;
  for (std::ptrdiff_t part = 0; part < parts_of(job_.world_size); ++part) {
    auto text = store_.get(part_key(part), std::max(deadline.left(), kProbeTimeout));
    // Rank 0 times out at about the same moment. If this rank left before that, rank 0 would report
    // it missing, too.
    if (!text && text.error().kind == ErrorKind::timeout) {
      text = store_.get(part_key(part), kRankZeroGrace);
    }
    if (!text && text.error().kind == ErrorKind::timeout) return tl::unexpected<Error>(missing());
    if (!text) return tl::unexpected<Error>(text.error());
    if (text->starts_with(kFailed)) {
      return failure(ErrorKind::timeout, text->substr(kFailed.size()));
    }
    GRADWIRE_ASSIGN_OR_RETURN(const auto list, decode_endpoints(*text));
    endpoints.insert(endpoints.end(), list.begin(), list.end());
  }
  return endpoints;
}

bool GivenStoreStart::has_joined(Rank rank) {
  const auto nonce = store_.get(nonce_key(rank), kProbeTimeout);
  if (!nonce || generation_.empty()) return nonce.has_value();
  return store_.get(endpoint_key(*nonce), kProbeTimeout).has_value();
}

Error GivenStoreStart::missing() {
  // This rank has joined. If the store says otherwise, its error is the reason: the start has
  // failed on rank 0, perhaps with a timeout as well, or the store is gone.
  const auto own = store_.get(nonce_key(job_.rank), kRankZeroGrace);
  if (!own) return own.error();
  std::vector<Rank> ranks;
  for (Rank rank = 0; rank < job_.world_size; ++rank) {
    if (!has_joined(rank)) ranks.push_back(rank);
  }
  return missing_error(ranks, {}, fmt::format("{}:{}", job_.master_address, job_.master_port),
                       timeout_);
}

Status GivenStoreStart::check() {
  if (failed_) return tl::unexpected<Error>(*failed_);
  const auto note = store_.get(prefix_ + "failed", kProbeTimeout);
  if (!note && note.error().kind == ErrorKind::timeout) return {};
  if (!note) return tl::unexpected<Error>(note.error());
  const net::AbortMessage why = net::decode_abort(std::as_bytes(std::span(*note)), 0);
  failed_ = Error{why.kind, why.text};
  return tl::unexpected<Error>(*failed_);
}

Error GivenStoreStart::fail(const Error& error) {
  // If two ranks fail at the same time, the last write wins; either is a valid reason.
  if (const Status before = check(); failed_) return before.error();
  const auto bytes =
      net::encode_abort({error.kind, job_.rank,
                         fmt::format("{} failed while the job started: {}", name_, error.message)});
  (void)store_.set(prefix_ + "failed",
                   std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  return error;
}

Status GivenStoreStart::await_all(net::Deadline deadline,
                                  const ConnectionCheck& check_connections) {
  const std::string all = prefix_ + "connected";
  GRADWIRE_RETURN_IF_ERROR(store_.set(connected_key(job_.rank), "yes"));
  if (job_.rank != 0) return await(all, "all ranks are connected", deadline, check_connections);
  for (Rank rank = 1; rank < job_.world_size; ++rank) {
    const std::string what = fmt::format("rank {} is connected to all others", rank);
    const Status there = await(connected_key(rank), what, deadline, check_connections);
    if (!there) return there;
  }
  return store_.set(all, "yes");
}

Status GivenStoreStart::await(const std::string& key, const std::string& what,
                              net::Deadline deadline, const ConnectionCheck& check_connections) {
  for (;;) {
    // Check first, because ranks disconnect as soon as they have seen the key.
    const Status connected = check_connections();
    const auto note = store_.get(key, std::clamp(deadline.left(), kProbeTimeout, kCheckInterval));
    if (note) return {};
    if (note.error().kind != ErrorKind::timeout) return tl::unexpected<Error>(note.error());
    GRADWIRE_RETURN_IF_ERROR(check());
    if (!connected) return tl::unexpected<Error>(fail(connected.error()));
    if (!deadline.passed()) continue;
    const Error late = {ErrorKind::timeout,
                        fmt::format("rank {} timed out waiting until {}", job_.rank, what)};
    return tl::unexpected<Error>(fail(late));
  }
}

}  // namespace gradwire::bootstrap
