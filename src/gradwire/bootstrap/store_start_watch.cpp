#include "gradwire/bootstrap/store_start_watch.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "gradwire/net/abort_message.h"

namespace gradwire::bootstrap {
namespace {

/// Timeout for testing whether a key exists. Not zero, which some stores treat as infinite.
constexpr Duration kProbeTimeout = std::chrono::milliseconds(1);

}  // namespace

StoreStartWatch::StoreStartWatch(Store& store, std::string prefix, Identity self)
    : store_(store), prefix_(std::move(prefix)), self_(std::move(self)) {}

std::string StoreStartWatch::key_of_connected(Rank rank) const {
  return fmt::format("{}connected/{}", prefix_, rank);
}

Status StoreStartWatch::check() {
  if (failed_) return tl::unexpected<Error>(*failed_);
  const auto note = store_.get(prefix_ + "failed", kProbeTimeout);
  if (!note && note.error().kind == ErrorKind::timeout) return {};
  if (!note) return tl::unexpected<Error>(note.error());
  const net::AbortMessage why = net::decode_abort(std::as_bytes(std::span(*note)), 0);
  failed_ = Error{why.kind, why.text};
  return tl::unexpected<Error>(*failed_);
}

Error StoreStartWatch::fail(const Error& error) {
  // If two ranks fail at the same time, the last write wins; either is a valid reason.
  if (const Status before = check(); failed_) return before.error();
  const auto bytes = net::encode_abort(
      {error.kind, self_.rank,
       fmt::format("{} failed while the job started: {}", self_.name, error.message)});
  (void)store_.set(prefix_ + "failed",
                   std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  return error;
}

Status StoreStartWatch::complete(net::Deadline deadline, const ConnectionCheck& check_connections) {
  const std::string all = prefix_ + "connected";
  GRADWIRE_RETURN_IF_ERROR(store_.set(key_of_connected(self_.rank), "yes"));
  if (self_.rank != 0) return await(all, "all ranks are connected", deadline, check_connections);
  for (Rank rank = 1; rank < self_.world_size; ++rank) {
    const std::string what = fmt::format("rank {} is connected to all others", rank);
    const Status there = await(key_of_connected(rank), what, deadline, check_connections);
    if (!there) return there;
  }
  return store_.set(all, "yes");
}

Status StoreStartWatch::await(const std::string& key, const std::string& what,
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
                        fmt::format("rank {} timed out waiting until {}", self_.rank, what)};
    return tl::unexpected<Error>(fail(late));
  }
}

}  // namespace gradwire::bootstrap
