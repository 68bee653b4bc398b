#include "gradwire/bootstrap/noted_start.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "gradwire/net/abort_message.h"

namespace gradwire {
namespace {

/// Timeout for testing whether a key exists. Not zero, which some stores treat as infinite.
constexpr Duration kGlance = std::chrono::milliseconds(1);

}  // namespace

NotedStart::NotedStart(Store& store, std::string prefix, Who who)
    : store_(store), prefix_(std::move(prefix)), who_(std::move(who)) {}

std::string NotedStart::key_of_connected(Rank rank) const {
  return fmt::format("{}connected/{}", prefix_, rank);
}

Status NotedStart::look() {
  if (failed_) return tl::unexpected<Error>(*failed_);
  const auto note = store_.get(prefix_ + "failed", kGlance);
  if (!note && note.error().kind == ErrorKind::timeout) return {};
  if (!note) return tl::unexpected<Error>(note.error());
  const AbortMessage why = decode_abort(std::as_bytes(std::span(*note)), 0);
  failed_ = Error{why.kind, why.text};
  return tl::unexpected<Error>(*failed_);
}

Error NotedStart::fail(const Error& error) {
  // If two ranks fail at the same time, the last write wins; either is a valid reason.
  if (const Status before = look(); failed_) return before.error();
  const auto bytes =
      encode_abort({error.kind, who_.rank,
                    fmt::format("{} failed while the job started: {}", who_.name, error.message)});
  (void)store_.set(prefix_ + "failed",
                   std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  return error;
}

Status NotedStart::complete(Deadline deadline, const Standing& standing) {
  const std::string all = prefix_ + "connected";
  if (Status set = store_.set(key_of_connected(who_.rank), "yes"); !set) return set;
  if (who_.rank != 0) return await(all, "all ranks are connected", deadline, standing);
  for (Rank rank = 1; rank < who_.world_size; ++rank) {
    const std::string what = fmt::format("rank {} is connected to all others", rank);
    const Status there = await(key_of_connected(rank), what, deadline, standing);
    if (!there) return there;
  }
  return store_.set(all, "yes");
}

Status NotedStart::await(const std::string& key, const std::string& what, Deadline deadline,
                         const Standing& standing) {
  for (;;) {
    // Check first, because ranks disconnect as soon as they have seen the key.
    const Status stand = standing();
    const auto note = store_.get(key, std::clamp(deadline.left(), kGlance, kLookEvery));
    if (note) return {};
    if (note.error().kind != ErrorKind::timeout) return tl::unexpected<Error>(note.error());
    if (Status heard = look(); !heard) return heard;
    if (!stand) return tl::unexpected<Error>(fail(stand.error()));
    if (!deadline.passed()) continue;
    const Error late = {ErrorKind::timeout,
                        fmt::format("rank {} timed out waiting until {}", who_.rank, what)};
    return tl::unexpected<Error>(fail(late));
  }
}

}  // namespace gradwire
