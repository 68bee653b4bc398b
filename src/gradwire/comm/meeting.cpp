#include "gradwire/comm/meeting.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "gradwire/base/random_hex.h"

namespace gradwire {
namespace {

using Json = nlohmann::json;

/// Places in one value, which so stays far below the largest a store takes.
constexpr std::size_t kPlacesAPart = 32;

/// To find out whether a key is there. Not zero, which some stores take for "for ever".
constexpr Duration kGlance = std::chrono::milliseconds(1);

/// Bytes that are no UTF-8 are replaced.
std::string text_of(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

tl::unexpected<Error> not_places(const std::string& text) {
  return failure(ErrorKind::corrupted,
                 "what rank 0 left in the store are not the ranks' places: " + text.substr(0, 100));
}

std::size_t parts_of(std::size_t ranks) {
  return (ranks + kPlacesAPart - 1) / kPlacesAPart;
}

}  // namespace

Meeting::Meeting(Store& store, const std::string& scope, Who who)
    : store_(store), prefix_("gradwire/" + scope + "/"), who_(std::move(who)) {}

std::string Meeting::key_of_place(Rank rank) const {
  return fmt::format("{}place/{}", prefix_, rank);
}

std::string Meeting::key_of_part(std::size_t part) const {
  return fmt::format("{}places/{}", prefix_, part);
}

Result<std::string> Meeting::share_secret(Deadline deadline) {
  const std::string key = prefix_ + "secret";
  if (who_.rank != 0) return store_.get(key, deadline.left());
  const std::string secret = random_hex(32);
  if (Status left = store_.set(key, secret); !left) return tl::unexpected<Error>(left.error());
  return secret;
}

Result<std::vector<RankPlace>> Meeting::exchange(const RankPlace& mine, Deadline deadline) {
  if (Status left = store_.set(key_of_place(who_.rank), encode(mine)); !left) {
    return tl::unexpected<Error>(left.error());
  }
  const auto texts = who_.rank == 0 ? gather(deadline) : fetch(deadline);
  if (!texts) return tl::unexpected<Error>(texts.error());
  std::vector<RankPlace> places;
  for (const std::string& text : *texts) {
    auto place = decode_rank_place(text);
    if (!place) return tl::unexpected<Error>(place.error());
    places.push_back(std::move(*place));
  }
  return places;
}

Result<std::vector<std::string>> Meeting::gather(Deadline deadline) {
  std::vector<std::string> places;
  for (Rank rank = 0; rank < who_.world_size; ++rank) {
    auto place = store_.get(key_of_place(rank), std::max(deadline.left(), kGlance));
    if (!place && place.error().kind == ErrorKind::timeout) {
      const Error error = missing();
      // The others shall not wait any longer, and learn the same.
      (void)store_.set(key_of_part(0), text_of({{"failed", error.message}}));
      return tl::unexpected<Error>(error);
    }
    if (!place) return tl::unexpected<Error>(place.error());
    places.push_back(std::move(*place));
  }
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
    const auto text = store_.get(key_of_part(part), std::max(deadline.left(), kGlance));
    if (!text && text.error().kind == ErrorKind::timeout) return tl::unexpected<Error>(missing());
    if (!text) return tl::unexpected<Error>(text.error());
    const Json list = Json::parse(*text, nullptr, /*allow_exceptions=*/false);
    if (list.is_object() && list.contains("failed") && list["failed"].is_string()) {
      return failure(ErrorKind::timeout, list["failed"].get<std::string>());
    }
    if (!list.is_array()) return not_places(*text);
    for (const Json& one : list) places.push_back(one.is_string() ? one.get<std::string>() : "");
  }
  if (places.size() != ranks) return not_places(fmt::format("{} places", places.size()));
  return places;
}

Error Meeting::missing() {
  std::vector<Rank> ranks;
  for (Rank rank = 0; rank < who_.world_size; ++rank) {
    if (!store_.get(key_of_place(rank), kGlance)) ranks.push_back(rank);
  }
  const double seconds = std::chrono::duration<double>(who_.timeout).count();
  const char* who = ranks.size() == 1 ? "rank" : "ranks";
  if (ranks.empty()) {
    return {ErrorKind::timeout,
            fmt::format("all ranks have joined at {}, but too late for this one's limit of {:.3g} "
                        "s: start them closer together, or raise the limit",
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
