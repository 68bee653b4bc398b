#include "gradwire/bootstrap/store/store_session.h"

#include <utility>

#include <poll.h>

namespace gradwire::bootstrap {
StoreSession::StoreSession(const Clock& clock, AuthenticatedSocket connection,
                           net::SocketAddress server)
    : clock_(&clock),
      stream_(std::make_unique<MessageStream>(std::move(connection.socket), connection.key,
                                              MessageStream::End::client, kMaxStoreMessageBytes)),
      server_(server) {}

Result<StoreResponse> StoreSession::ask(const StoreRequest& request) {
  if (lost_) return tl::unexpected<Error>(*lost_);
  const Duration patience = std::chrono::milliseconds(request.wait_ms) + kRankZeroPatience;
  const net::Deadline deadline = net::Deadline::after(*clock_, patience);
  const Status sent = stream_->send(encode(request));
  // The server may have closed the connection after it said why.
  auto response = await_response(deadline);
  if (!response && !sent) return lost(sent.error());
  return response;
}

Result<StoreResponse> StoreSession::await_response(net::Deadline deadline) {
  for (;;) {
    const Status flushed = stream_->flush();
    std::string message;
    const Result<bool> there = stream_->receive(message);
    if (!there) return lost(there.error());
    if (*there) {
      auto response = decode_store_response(message);
      return response ? std::move(response) : Result<StoreResponse>(lost(response.error()));
    }
    if (!flushed) return lost(flushed.error());
    const short events = stream_->flushed() ? POLLIN : POLLIN | POLLOUT;
    if (!net::wait_for(stream_->socket(), events, deadline)) {
      return lost({ErrorKind::disconnected, "it does not respond"});
    }
  }
}

tl::unexpected<Error> StoreSession::lost(const Error& error) {
  if (!lost_) lost_ = error;
  return tl::unexpected<Error>(error);
}

}  // namespace gradwire::bootstrap
