#include "gradwire/net/shm/open_transport.h"

#include <utility>

#include "gradwire/base/check.h"
#include "gradwire/net/shm/neighbors.h"
#include "gradwire/net/shm/ring_transport.h"
#include "gradwire/net/tcp_transport.h"
#include "gradwire/net/tls_handshake.h"

namespace gradwire::net {
namespace {

std::vector<Candidate> candidates_of(const Connections& connections,
                                     const std::vector<Rank>& neighbors) {
  std::vector<Candidate> candidates;
  for (const Rank rank : neighbors) {
    const auto p = static_cast<std::size_t>(rank);
    GRADWIRE_CHECK(rank != connections.rank && !connections.sockets.at(p).empty());
    candidates.push_back({rank, &connections.sockets[p].front(), connections.names[p].front()});
  }
  return candidates;
}

/// The streams to be encrypted, and their TLS handshakes.
struct Encryption {
  std::vector<StreamId> streams;
  std::vector<TlsConnection> connections;
};

Encryption encryption_of(const Connections& connections) {
  Encryption encryption;
  for (std::size_t p = 0; p < connections.keys.size(); ++p) {
    for (std::size_t i = 0; i < connections.keys[p].size(); ++i) {
      const bool called = static_cast<Rank>(p) < connections.rank;
      encryption.streams.push_back({static_cast<Rank>(p), static_cast<int>(i)});
      encryption.connections.push_back(
          {.socket = &connections.sockets[p][i],
           .name = connections.names[p][i],
           .end = called ? TlsStream::End::client : TlsStream::End::server,
           .key = connections.keys[p][i]});
    }
  }
  return encryption;
}

}  // namespace

Result<std::unique_ptr<PollingTransport>> open_transport(Connections connections,
                                                         const std::vector<Rank>& neighbors,
                                                         Deadline deadline) {
  Socket bell = TcpTransport::make_wakeup();
  GRADWIRE_ASSIGN_OR_RETURN(
      auto met,
      connect_neighbors(connections.rank, candidates_of(connections, neighbors), bell, deadline));
  for (const Neighbor& neighbor : met) {
    const auto p = static_cast<std::size_t>(neighbor.rank);
    connections.sockets[p].resize(1);
    connections.names[p].resize(1);
    if (!connections.keys.empty()) connections.keys[p].clear();
  }
  const Encryption encryption = encryption_of(connections);
  GRADWIRE_ASSIGN_OR_RETURN(auto streams, handshake_all(encryption.connections, deadline));
  GRADWIRE_ASSIGN_OR_RETURN(
      auto tcp,
      TcpTransport::create(deadline.clock(), std::move(connections.sockets),
                           std::move(connections.names), connections.dead_after, std::move(bell)));
  for (std::size_t i = 0; i < streams.size(); ++i) {
    tcp->encrypt(encryption.streams[i], std::move((streams)[i]));
  }
  if (met.empty()) return std::unique_ptr<PollingTransport>(std::move(tcp));
  return std::make_unique<RingTransport>(std::move(tcp), std::move(met));
}

}  // namespace gradwire::net
