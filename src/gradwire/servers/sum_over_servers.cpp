#include "gradwire/servers/sum_over_servers.h"

#include <cstddef>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "gradwire/base/error.h"

namespace gradwire::servers {
namespace {

/// Values by server.
using ValuesOfServers = std::vector<std::vector<double>>;

/// Sends this server's values to each other one, and receives theirs.
Work exchange_values(Communicator& pairs, const Placement& placement, int server,
                     const std::shared_ptr<ValuesOfServers>& all) {
  const auto lent = [&](int owner) {
    std::vector<double>& values = (*all)[static_cast<std::size_t>(owner)];
    return LentSpan{values.data(), values.size(), DataType::float64, all};
  };
  return pairs.coalesced([&](Communicator& together) {
    for (int other = 0; other < placement.servers; ++other) {
      if (other == server) continue;
      together.send(lent(server), placement.rank_of_server(other), kSumTag);
      together.recv(lent(other), placement.rank_of_server(other), kSumTag);
    }
  });
}

}  // namespace

std::vector<double> sum_over_servers(Communicator& pairs, const Placement& placement, int server,
                                     std::vector<double> values) {
  if (placement.servers == 1 || values.empty()) return values;
  const auto all = std::make_shared<ValuesOfServers>(static_cast<std::size_t>(placement.servers),
                                                     std::vector<double>(values.size()));
  (*all)[static_cast<std::size_t>(server)] = std::move(values);
  try {
    exchange_values(pairs, placement, server, all).wait();
  } catch (const Exception& e) {
    // Whatever its kind, no worker's message has caused it.
    throw Exception(ErrorKind::disconnected,
                    fmt::format("server {} of {} has no norms of all servers, and its step cannot "
                                "be taken: {}",
                                server, placement.servers, e.what()));
  }
  std::vector<double> sums = std::move(all->front());
  for (std::size_t other = 1; other < all->size(); ++other) {
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += (*all)[other][i];
  }
  return sums;
}

}  // namespace gradwire::servers
