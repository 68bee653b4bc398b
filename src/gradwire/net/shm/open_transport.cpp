#include "gradwire/net/shm/open_transport.h"

#include <utility>

#include "gradwire/base/check.h"
#include "gradwire/net/shm/neighbours.h"
#include "gradwire/net/shm/ring_transport.h"
#include "gradwire/net/tcp_transport.h"

namespace gradwire {
namespace {

std::vector<Candidate> candidates_of(const Connections& connections,
                                     const std::vector<Rank>& neighbours) {
  std::vector<Candidate> candidates;
  for (const Rank rank : neighbours) {
    const auto p = static_cast<std::size_t>(rank);
    GRADWIRE_CHECK(rank != connections.rank && !connections.sockets.at(p).empty());
    candidates.push_back({rank, &connections.sockets[p].front(), connections.names[p].front()});
  }
  return candidates;
}

}  // namespace

Result<std::unique_ptr<PollingTransport>> open_transport(Connections connections,
                                                         const std::vector<Rank>& neighbours,
                                                         Deadline deadline) {
  Socket bell = TcpTransport::make_wakeup();
  auto met =
      meet_neighbours(connections.rank, candidates_of(connections, neighbours), bell, deadline);
  if (!met) return tl::unexpected<Error>(met.error());
  for (const Neighbour& neighbour : *met) {
    const auto p = static_cast<std::size_t>(neighbour.rank);
    connections.sockets[p].resize(1);
    connections.names[p].resize(1);
  }
  auto tcp = TcpTransport::create(std::move(connections.sockets), std::move(connections.names),
                                  connections.dead_after, std::move(bell));
  if (!tcp) return tl::unexpected<Error>(tcp.error());
  if (met->empty()) return std::unique_ptr<PollingTransport>(std::move(*tcp));
  return std::make_unique<RingTransport>(std::move(*tcp), std::move(*met));
}

}  // namespace gradwire
