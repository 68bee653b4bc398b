#include "gradwire/bootstrap/served_start.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <poll.h>

#include "gradwire/net/abort_message.h"
#include "gradwire/net/host_network.h"

namespace gradwire::bootstrap {
namespace {

/// Maximum time that one request waits at the server; renewing it shows that the server is alive.
constexpr Duration kExchangeTurn = std::chrono::seconds(1);

/// Pause before a rank whose earlier process may still be exiting asks again.
constexpr Duration kRetryPause = std::chrono::milliseconds(50);

std::uint32_t wait_of(Duration duration) {
  return static_cast<std::uint32_t>(net::milliseconds_of(duration));
}

}  // namespace

ServedStart::ServedStart(const net::HostNetwork& network, StoreSession session, const Job& job,
                         Duration timeout)
    : network_(network), session_(std::move(session)), job_(job), timeout_(timeout) {
  net::keep_alive(session_.socket(), kStoreDeadAfter);
}

std::string ServedStart::where() const {
  return fmt::format("{}:{}", job_.master_address, job_.master_port);
}

Result<std::vector<RankEndpoint>> ServedStart::exchange_endpoints(const RankEndpoint& own,
                                                                  net::Deadline given) {
  // Rank 0 times out at about the same moment. If this rank left before that, rank 0 would name it.
  const net::Deadline deadline =
      job_.rank == 0 ? given : net::Deadline(network_.clock(), after(given.at(), kRankZeroGrace));
  StoreRequest request{
      .operation = StoreOperation::exchange, .key = job_.job_id, .value = encode(own)};
  for (;;) {
    request.wait_ms = wait_of(std::min(deadline.left(), kExchangeTurn));
    GRADWIRE_ASSIGN_OR_RETURN(const auto response, ask(request));
    switch (response.answer) {
      case StoreAnswer::ok: {
        GRADWIRE_ASSIGN_OR_RETURN(const auto endpoints, decode_endpoints(response.value));
        return decode_all(endpoints);
      }
      case StoreAnswer::refused:
        return failure(ErrorKind::invalid_argument, response.value);
      case StoreAnswer::later:
        network_.pause(std::min(deadline.left(), kRetryPause));
        break;
      default:
        break;
    }
    if (!deadline.passed()) continue;
    if (response.answer == StoreAnswer::later) {
      return failure(ErrorKind::disconnected,
                     fmt::format("rank 0 still has a connection to another process that joined as "
                                 "rank {}",
                                 job_.rank));
    }
    const MissingRanks missing = decode_missing_ranks(response.value);
    return tl::unexpected<Error>(missing_error(missing.ranks, missing.ended, where(), timeout_));
  }
}

Status ServedStart::check() {
  if (failed_) return tl::unexpected<Error>(*failed_);
  const Clock& clock = network_.clock();
  const net::Deadline now = net::Deadline::after(clock, Duration::zero());
  if (!net::wait_for(session_.socket(), POLLIN, now)) return {};
  GRADWIRE_RETURN_IF_ERROR(
      checked(session_.await_response(net::Deadline::after(clock, kRankZeroPatience))));
  return failure(ErrorKind::disconnected,
                 fmt::format("the job's store of rank 0 at {} sent an unexpected response",
                             session_.server().to_string()));
}

Error ServedStart::fail(const Error& error) {
  const auto bytes = net::encode_abort({error.kind, job_.rank, error.message});
  // The response is the failure of the start and its reason.
  const auto response =
      ask({.operation = StoreOperation::fail,
           .value = std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size())});
  // If all ranks report the same error, this rank's own wording is used.
  if (failed_) return failed_->message.ends_with(error.message) ? error : *failed_;
  // Losing another rank may be a consequence of rank 0's end, which all ranks notice.
  const bool follows = error.kind == ErrorKind::disconnected && !response;
  return follows ? response.error() : error;
}

Status ServedStart::await_all(net::Deadline deadline,
                              const ConnectionCheck& /*check_connections*/) {
  GRADWIRE_ASSIGN_OR_RETURN(const auto response, ask({.operation = StoreOperation::complete,
                                                      .wait_ms = wait_of(deadline.left())}));
  if (response.answer == StoreAnswer::ok) return {};
  // Or the others would take the end of this rank for the reason.
  return tl::unexpected<Error>(fail({ErrorKind::timeout, response.value}));
}

Result<StoreResponse> ServedStart::ask(const StoreRequest& request) {
  if (failed_) return tl::unexpected<Error>(*failed_);
  return checked(session_.ask(request));
}

/// Turns the answer `failed` into the reason for which the start has failed.
Result<StoreResponse> ServedStart::checked(Result<StoreResponse> response) {
  if (!response) {
    return failure(response.error().kind,
                   fmt::format("rank {} lost the job's store of rank 0 at {}: {}", job_.rank,
                               session_.server().to_string(), response.error().message));
  }
  if (response->answer != StoreAnswer::failed) return response;
  const net::AbortMessage why = net::decode_abort(std::as_bytes(std::span(response->value)), 0);
  failed_ = Error{why.kind, why.text};
  return tl::unexpected<Error>(*failed_);
}

}  // namespace gradwire::bootstrap
