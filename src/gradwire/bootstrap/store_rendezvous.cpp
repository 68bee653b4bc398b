#include "gradwire/bootstrap/store_rendezvous.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "gradwire/base/random.h"

namespace gradwire::bootstrap {
namespace {

using Json = nlohmann::json;

/// Endpoints per value; keeps values far below the size limit of stores.
constexpr std::size_t kEndpointsPerPart = 32;

/// Timeout for testing whether a key exists. Not zero, which some stores treat as infinite.
constexpr Duration kProbeTimeout = std::chrono::milliseconds(1);

/// Time for which rank 0 waits for one rank's nonce or endpoint before it checks the other ranks.
/// It then checks that nonce again, because a nonce that was answered may be from an earlier
/// rendezvous.
constexpr Duration kJoinInterval = std::chrono::milliseconds(100);

/// Time for which a rank whose deadline has passed waits for rank 0's error.
constexpr Duration kForRankZero = std::chrono::seconds(1);

/// Replaces bytes that are not UTF-8.
std::string text_of(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

tl::unexpected<Error> malformed_endpoints(const std::string& text) {
  return failure(
      ErrorKind::corrupted,
      "the store does not contain the ranks' places that rank 0 should have written, but: " +
          text.substr(0, 100));
}

std::size_t parts_of(std::size_t ranks) {
  return (ranks + kEndpointsPerPart - 1) / kEndpointsPerPart;
}

}  // namespace

StoreRendezvous::StoreRendezvous(Store& store, const std::string& scope, Identity self)
    : store_(store), scope_("gradwire/" + scope + "/"), self_(std::move(self)) {}

std::string StoreRendezvous::nonce_key(Rank rank) const {
  return fmt::format("{}knock/{}", scope_, rank);
}

std::string StoreRendezvous::generation_key(const std::string& nonce) const {
  return fmt::format("{}room/{}", scope_, nonce);
}

std::string StoreRendezvous::endpoint_key(const std::string& nonce) const {
  return fmt::format("{}place/{}", prefix_, nonce);
}

std::string StoreRendezvous::part_key(std::size_t part) const {
  return fmt::format("{}places/{}", prefix_, part);
}

Status StoreRendezvous::join(net::Deadline deadline) {
  nonce_ = random_hex(8);
  GRADWIRE_RETURN_IF_ERROR(store_.set(nonce_key(self_.rank), nonce_));
  if (self_.rank == 0) {
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
Status StoreRendezvous::admit(Rank rank, Joiner& joiner, Duration patience) {
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
Status StoreRendezvous::admit_all(std::vector<Joiner>& joiners, net::Deadline deadline) {
  for (bool complete = false; !complete;) {
    complete = true;
    Duration patience = std::min(deadline.left(), kJoinInterval);  // With the first missing rank.
    for (Rank rank = 1; rank < self_.world_size; ++rank) {
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
Result<bool> StoreRendezvous::are_unchanged(const std::vector<Joiner>& joiners) {
  for (Rank rank = 1; rank < self_.world_size; ++rank) {
    const auto nonce = store_.get(nonce_key(rank), kProbeTimeout);
    const bool gone = !nonce && nonce.error().kind == ErrorKind::timeout;
    if (!nonce && !gone) return tl::unexpected<Error>(nonce.error());
    if (gone || *nonce != joiners[static_cast<std::size_t>(rank)].nonce) return false;
  }
  return true;
}

Result<std::string> StoreRendezvous::share_secret(net::Deadline deadline) {
  const std::string key = prefix_ + "secret";
  if (self_.rank != 0) return store_.get(key, deadline.left());
  const std::string secret = random_hex(32);
  GRADWIRE_RETURN_IF_ERROR(store_.set(key, secret));
  return secret;
}

Result<std::vector<RankEndpoint>> StoreRendezvous::exchange(const RankEndpoint& mine,
                                                            StartWatch& watch,
                                                            net::Deadline deadline) {
  const std::string own = encode(mine);
  GRADWIRE_RETURN_IF_ERROR(store_.set(endpoint_key(nonce_), own));
  GRADWIRE_ASSIGN_OR_RETURN(const auto texts,
                            self_.rank == 0 ? gather(own, watch, deadline) : fetch(deadline));
  const auto ranks = static_cast<std::size_t>(self_.world_size);
  std::vector<RankEndpoint> endpoints;
  for (const std::string& text : texts) {
    GRADWIRE_ASSIGN_OR_RETURN(auto endpoint, decode_rank_endpoint(text));
    endpoints.push_back(std::move(endpoint));
  }
  if (endpoints.size() != ranks) {
    return failure(ErrorKind::mismatch,
                   fmt::format("rank {} was started with a world size of {}, rank 0 with {}: give "
                               "every rank the same world size, and new_group() the same ranks",
                               self_.rank, ranks, endpoints.size()));
  }
  const auto last = store_.get(nonce_key(self_.rank), kProbeTimeout);
  // The start may have failed in the meantime.
  if (!last && last.error().kind != ErrorKind::timeout) return tl::unexpected<Error>(last.error());
  if (last && *last != nonce_) {
    return failure(
        ErrorKind::invalid_argument,
        fmt::format("another process has joined as rank {}, which is already {}: give each "
                    "process its own RANK",
                    self_.rank, mine.describe(self_.rank)));
  }
  return endpoints;
}

Result<std::vector<std::string>> StoreRendezvous::gather(const std::string& mine, StartWatch& watch,
                                                         net::Deadline deadline) {
  std::vector<Joiner> joiners(static_cast<std::size_t>(self_.world_size));
  for (bool those = false; !those;) {
    if (Status all = admit_all(joiners, deadline); !all) {
      // Ends the wait of the other ranks with the same error.
      (void)store_.set(part_key(0), text_of({{"failed", all.error().message}}));
      return tl::unexpected<Error>(all.error());
    }
    const Result<bool> sealed = watch.seal();
    GRADWIRE_ASSIGN_OR_RETURN(const auto same, sealed ? are_unchanged(joiners) : sealed);
    those = *sealed && same;
    if (!those) joiners.assign(joiners.size(), {});
  }
  std::vector<std::string> endpoints = {mine};
  for (std::size_t i = 1; i < joiners.size(); ++i)
    endpoints.push_back(std::move(joiners[i].endpoint));
  GRADWIRE_RETURN_IF_ERROR(publish(endpoints));
  return endpoints;
}

Status StoreRendezvous::publish(const std::vector<std::string>& endpoints) {
  for (std::size_t part = 0; part < parts_of(endpoints.size()); ++part) {
    Json list = Json::array();
    const std::size_t end = std::min(endpoints.size(), (part + 1) * kEndpointsPerPart);
    for (std::size_t i = part * kEndpointsPerPart; i < end; ++i) list.push_back(endpoints[i]);
    GRADWIRE_RETURN_IF_ERROR(store_.set(part_key(part), text_of(list)));
  }
  return {};
}

Result<std::vector<std::string>> StoreRendezvous::fetch(net::Deadline deadline) {
  const auto ranks = static_cast<std::size_t>(self_.world_size);
  std::vector<std::string> endpoints;
  for (std::size_t part = 0; part < parts_of(ranks); ++part) {
    auto text = store_.get(part_key(part), std::max(deadline.left(), kProbeTimeout));
    // Rank 0 times out at about the same moment. If this rank left before that, rank 0 would report
    // it missing, too.
    if (!text && text.error().kind == ErrorKind::timeout) {
      text = store_.get(part_key(part), kForRankZero);
    }
    if (!text && text.error().kind == ErrorKind::timeout) return tl::unexpected<Error>(missing());
    if (!text) return tl::unexpected<Error>(text.error());
    const Json list = Json::parse(*text, nullptr, /*allow_exceptions=*/false);
    if (list.is_object() && list.contains("failed") && list["failed"].is_string()) {
      return failure(ErrorKind::timeout, list["failed"].get<std::string>());
    }
    if (!list.is_array()) return malformed_endpoints(*text);
    for (const Json& one : list) endpoints.push_back(one.is_string() ? one.get<std::string>() : "");
  }
  return endpoints;
}

bool StoreRendezvous::has_joined(Rank rank) {
  const auto nonce = store_.get(nonce_key(rank), kProbeTimeout);
  if (!nonce || generation_.empty()) return nonce.has_value();
  return store_.get(endpoint_key(*nonce), kProbeTimeout).has_value();
}

Error StoreRendezvous::missing() {
  // This rank has joined. If the store says otherwise, its error is the reason: the start has
  // failed on rank 0, perhaps with a timeout as well, or the store is gone.
  const auto own = store_.get(nonce_key(self_.rank), kForRankZero);
  if (!own) return own.error();
  std::vector<Rank> ranks;
  for (Rank rank = 0; rank < self_.world_size; ++rank) {
    if (!has_joined(rank)) ranks.push_back(rank);
  }
  std::vector<std::string> ended;
  for (const Rank rank : ranks) {
    if (const auto who = store_.get(ended_key(rank), kProbeTimeout)) ended.push_back(*who);
  }
  const double seconds = std::chrono::duration<double>(self_.timeout).count();
  const char* who = ranks.size() == 1 ? "rank" : "ranks";
  if (ranks.empty()) {
    return {ErrorKind::timeout,
            fmt::format("all ranks have joined at {}, but after this rank's timeout of {:.3g} "
                        "s: start them closer together, or raise the timeout",
                        self_.where, seconds)};
  }
  if (!ended.empty()) {
    return {ErrorKind::timeout,
            fmt::format("{} ended before all ranks had joined at {}, and {} not started again "
                        "within {:.3g} s: what {} printed says why",
                        fmt::join(ended, ", "), self_.where, ended.size() == 1 ? "was" : "were",
                        seconds, ended.size() == 1 ? "it" : "they")};
  }
  return {ErrorKind::timeout,
          fmt::format(
              "{} {} {} not joined at {} within {:.3g} s; {} started, and can {} reach that "
              "address?",
              who, fmt::join(ranks, ", "), ranks.size() == 1 ? "has" : "have", self_.where, seconds,
              ranks.size() == 1 ? "is it" : "are they", ranks.size() == 1 ? "it" : "they")};
}

}  // namespace gradwire::bootstrap
