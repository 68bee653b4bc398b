#include "gradwire/bootstrap/meeting.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "gradwire/base/random_hex.h"

namespace gradwire {
namespace {

using Json = nlohmann::json;

/// Places per value; keeps values far below the size limit of stores.
constexpr std::size_t kPlacesAPart = 32;

/// Timeout for testing whether a key exists. Not zero, which some stores treat as infinite.
constexpr Duration kGlance = std::chrono::milliseconds(1);

/// Time for which rank 0 waits for one rank's nonce or place before it checks the other ranks. It
/// then checks that nonce again, because a nonce that was answered may be from an earlier
/// rendezvous.
constexpr Duration kPatience = std::chrono::milliseconds(100);

/// Time for which a rank whose deadline has passed waits for rank 0's error.
constexpr Duration kForRankZero = std::chrono::seconds(1);

/// Replaces bytes that are not UTF-8.
std::string text_of(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

tl::unexpected<Error> not_places(const std::string& text) {
  return failure(
      ErrorKind::corrupted,
      "the store does not contain the ranks' places that rank 0 should have written, but: " +
          text.substr(0, 100));
}

std::size_t parts_of(std::size_t ranks) {
  return (ranks + kPlacesAPart - 1) / kPlacesAPart;
}

}  // namespace

Meeting::Meeting(Store& store, const std::string& scope, Who who)
    : store_(store), scope_("gradwire/" + scope + "/"), who_(std::move(who)) {}

std::string Meeting::key_of_knock(Rank rank) const {
  return fmt::format("{}knock/{}", scope_, rank);
}

std::string Meeting::key_of_room(const std::string& word) const {
  return fmt::format("{}room/{}", scope_, word);
}

std::string Meeting::key_of_place(const std::string& word) const {
  return fmt::format("{}place/{}", prefix_, word);
}

std::string Meeting::key_of_part(std::size_t part) const {
  return fmt::format("{}places/{}", prefix_, part);
}

Status Meeting::enter(Deadline deadline) {
  word_ = random_hex(8);
  if (Status knocked = store_.set(key_of_knock(who_.rank), word_); !knocked) return knocked;
  if (who_.rank == 0) {
    room_ = word_;
  } else {
    auto room = store_.get(key_of_room(word_), deadline.left());
    if (!room && room.error().kind == ErrorKind::timeout) return tl::unexpected<Error>(missing());
    if (!room) return tl::unexpected<Error>(room.error());
    room_ = std::move(*room);
  }
  prefix_ = scope_ + room_ + "/";
  return {};
}

/// Answers a rank's nonce, once it is written, and reads its place, once that is written. Repeats
/// both if the nonce has changed. Fails with timeout.
Status Meeting::admit(Rank rank, Guest& guest, Duration patience) {
  const auto word = store_.get(key_of_knock(rank), guest.word.empty() ? patience : kGlance);
  if (!word) return tl::unexpected<Error>(word.error());
  if (*word != guest.word) {
    if (Status answered = store_.set(key_of_room(*word), room_); !answered) return answered;
    guest = {.word = *word, .place = {}};
  }
  auto place = store_.get(key_of_place(guest.word), patience);
  if (!place) return tl::unexpected<Error>(place.error());
  guest.place = std::move(*place);
  return {};
}

/// Returns when every rank has joined. Fails with timeout.
Status Meeting::admit_all(std::vector<Guest>& guests, Deadline deadline) {
  for (bool complete = false; !complete;) {
    complete = true;
    Duration patience = std::min(deadline.left(), kPatience);  // With the first missing rank.
    for (Rank rank = 1; rank < who_.world_size; ++rank) {
      Guest& guest = guests[static_cast<std::size_t>(rank)];
      if (!guest.place.empty()) continue;
      const Status admitted = admit(rank, guest, std::max(patience, kGlance));
      if (admitted) continue;
      if (admitted.error().kind != ErrorKind::timeout) return admitted;
      patience = kGlance;
      complete = false;
    }
    if (!complete && deadline.passed()) return tl::unexpected<Error>(missing());
  }
  return {};
}

/// Returns true if no rank has been restarted in the meantime.
Result<bool> Meeting::are_those(const std::vector<Guest>& guests) {
  for (Rank rank = 1; rank < who_.world_size; ++rank) {
    const auto word = store_.get(key_of_knock(rank), kGlance);
    const bool gone = !word && word.error().kind == ErrorKind::timeout;
    if (!word && !gone) return tl::unexpected<Error>(word.error());
    if (gone || *word != guests[static_cast<std::size_t>(rank)].word) return false;
  }
  return true;
}

Result<std::string> Meeting::share_secret(Deadline deadline) {
  const std::string key = prefix_ + "secret";
  if (who_.rank != 0) return store_.get(key, deadline.left());
  const std::string secret = random_hex(32);
  if (Status left = store_.set(key, secret); !left) return tl::unexpected<Error>(left.error());
  return secret;
}

Result<std::vector<RankPlace>> Meeting::exchange(const RankPlace& mine, StartWatch& watch,
                                                 Deadline deadline) {
  const std::string own = encode(mine);
  if (Status left = store_.set(key_of_place(word_), own); !left) {
    return tl::unexpected<Error>(left.error());
  }
  const auto texts = who_.rank == 0 ? gather(own, watch, deadline) : fetch(deadline);
  if (!texts) return tl::unexpected<Error>(texts.error());
  const auto ranks = static_cast<std::size_t>(who_.world_size);
  std::vector<RankPlace> places;
  for (const std::string& text : *texts) {
    auto place = decode_rank_place(text);
    if (!place) return tl::unexpected<Error>(place.error());
    places.push_back(std::move(*place));
  }
  if (places.size() != ranks) {
    return failure(ErrorKind::mismatch,
                   fmt::format("rank {} was started with a world size of {}, rank 0 with {}: give "
                               "every rank the same world size, and new_group() the same ranks",
                               who_.rank, ranks, places.size()));
  }
  const auto last = store_.get(key_of_knock(who_.rank), kGlance);
  // The start may have failed in the meantime.
  if (!last && last.error().kind != ErrorKind::timeout) return tl::unexpected<Error>(last.error());
  if (last && *last != word_) {
    return failure(
        ErrorKind::invalid_argument,
        fmt::format("another process has joined as rank {}, which is already {}: give each "
                    "process its own RANK",
                    who_.rank, mine.describe(who_.rank)));
  }
  return places;
}

Result<std::vector<std::string>> Meeting::gather(const std::string& mine, StartWatch& watch,
                                                 Deadline deadline) {
  std::vector<Guest> guests(static_cast<std::size_t>(who_.world_size));
  for (bool those = false; !those;) {
    if (Status all = admit_all(guests, deadline); !all) {
      // Ends the wait of the other ranks with the same error.
      (void)store_.set(key_of_part(0), text_of({{"failed", all.error().message}}));
      return tl::unexpected<Error>(all.error());
    }
    const Result<bool> sealed = watch.seal();
    const Result<bool> same = sealed ? are_those(guests) : sealed;
    if (!same) return tl::unexpected<Error>(same.error());
    those = *sealed && *same;
    if (!those) guests.assign(guests.size(), {});
  }
  std::vector<std::string> places = {mine};
  for (std::size_t i = 1; i < guests.size(); ++i) places.push_back(std::move(guests[i].place));
  if (Status published = publish(places); !published) {
    return tl::unexpected<Error>(published.error());
  }
  return places;
}

Status Meeting::publish(const std::vector<std::string>& places) {
  for (std::size_t part = 0; part < parts_of(places.size()); ++part) {
    Json list = Json::array();
    const std::size_t end = std::min(places.size(), (part + 1) * kPlacesAPart);
    for (std::size_t i = part * kPlacesAPart; i < end; ++i) list.push_back(places[i]);
    if (Status set = store_.set(key_of_part(part), text_of(list)); !set) return set;
  }
  return {};
}

Result<std::vector<std::string>> Meeting::fetch(Deadline deadline) {
  const auto ranks = static_cast<std::size_t>(who_.world_size);
  std::vector<std::string> places;
  for (std::size_t part = 0; part < parts_of(ranks); ++part) {
    auto text = store_.get(key_of_part(part), std::max(deadline.left(), kGlance));
    // Rank 0 times out at about the same moment. If this rank left before that, rank 0 would report
    // it missing, too.
    if (!text && text.error().kind == ErrorKind::timeout) {
      text = store_.get(key_of_part(part), kForRankZero);
    }
    if (!text && text.error().kind == ErrorKind::timeout) return tl::unexpected<Error>(missing());
    if (!text) return tl::unexpected<Error>(text.error());
    const Json list = Json::parse(*text, nullptr, /*allow_exceptions=*/false);
    if (list.is_object() && list.contains("failed") && list["failed"].is_string()) {
      return failure(ErrorKind::timeout, list["failed"].get<std::string>());
    }
    if (!list.is_array()) return not_places(*text);
    for (const Json& one : list) places.push_back(one.is_string() ? one.get<std::string>() : "");
  }
  return places;
}

bool Meeting::has_joined(Rank rank) {
  const auto word = store_.get(key_of_knock(rank), kGlance);
  if (!word || room_.empty()) return word.has_value();
  return store_.get(key_of_place(*word), kGlance).has_value();
}

Error Meeting::missing() {
  std::vector<Rank> ranks;
  for (Rank rank = 0; rank < who_.world_size; ++rank) {
    if (!has_joined(rank)) ranks.push_back(rank);
  }
  const double seconds = std::chrono::duration<double>(who_.timeout).count();
  const char* who = ranks.size() == 1 ? "rank" : "ranks";
  if (ranks.empty()) {
    return {ErrorKind::timeout,
            fmt::format("all ranks have joined at {}, but after this rank's timeout of {:.3g} "
                        "s: start them closer together, or raise the timeout",
                        who_.where, seconds)};
  }
  return {ErrorKind::timeout,
          fmt::format(
              "{} {} {} not joined at {} within {:.3g} s; {} started, and can {} reach that "
              "address?",
              who, fmt::join(ranks, ", "), ranks.size() == 1 ? "has" : "have", who_.where, seconds,
              ranks.size() == 1 ? "is it" : "are they", ranks.size() == 1 ? "it" : "they")};
}

}  // namespace gradwire
