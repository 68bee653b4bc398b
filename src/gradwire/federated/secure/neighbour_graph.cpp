#include "gradwire/federated/secure/neighbour_graph.h"

#include <algorithm>
#include <utility>

#include "gradwire/base/check.h"
#include "gradwire/federated/secure/secure_policy.h"

namespace gradwire::federated {
namespace {

/// Fisher and Yates's shuffle, with 64 bits of AES-256-CTR for each draw.
void shuffle(std::vector<ClientId>& clients, const Digest& seed) {
  KeyStream stream;
  std::vector<std::byte> drawn(8 * clients.size());
  GRADWIRE_CHECK(stream.start_at_block(Secret(seed), 0) && stream.fill(drawn));
  for (std::size_t left = clients.size(); left > 1; --left) {
    const auto number = load_little_endian<std::uint64_t>(drawn.data() + 8 * (left - 1));
    std::swap(clients[left - 1], clients[number % left]);
  }
}

}  // namespace

NeighbourGraph::NeighbourGraph(std::vector<ClientId> members, int neighbours, const Digest& seed)
    : members_(std::move(members)), circle_(members_) {
  degree_ = degree_among(static_cast<int>(members_.size()), neighbours);
  shuffle(circle_, seed);
  for (std::size_t place = 0; place < circle_.size(); ++place) places_[circle_[place]] = place;
}

std::vector<ClientId> NeighbourGraph::neighbours_of(ClientId client) const {
  const std::size_t size = circle_.size(), at = places_.at(client);
  std::vector<ClientId> found;
  const auto degree = static_cast<std::size_t>(degree_);
  for (std::size_t step = 1; found.size() < degree; ++step) {
    found.push_back(circle_[(at + step) % size]);
    if (found.size() < degree) found.push_back(circle_[(at + size - step) % size]);
  }
  std::ranges::sort(found);
  return found;
}

int NeighbourGraph::point_of(ClientId client) const {
  const auto found = std::ranges::lower_bound(members_, client);
  GRADWIRE_CHECK(found != members_.end() && *found == client);
  return static_cast<int>(found - members_.begin()) + 1;
}

}  // namespace gradwire::federated
