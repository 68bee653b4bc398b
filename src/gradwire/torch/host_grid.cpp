#include "gradwire/torch/host_grid.h"

#include <algorithm>
#include <cstring>
#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace gradwire {
namespace {

/// The texts of all ranks; a longer one is cut.
std::vector<std::string> texts_of_ranks(Communicator& communicator, std::string text) {
  constexpr std::size_t kLength = 256;
  text.resize(kLength);
  std::vector<char> all(kLength * static_cast<std::size_t>(communicator.size()));
  communicator
      .all_gather({text.data(), text.size(), DataType::uint8},
                  {all.data(), all.size(), DataType::uint8})
      .wait();
  std::vector<std::string> texts;
  for (std::size_t begin = 0; begin < all.size(); begin += kLength)
    texts.emplace_back(&all[begin], ::strnlen(&all[begin], kLength));
  return texts;
}

}  // namespace

std::vector<Rank> HostGrid::between() const {
  std::vector<Rank> ranks;
  for (const std::vector<Rank>& each : hosts) ranks.push_back(each[place]);
  return ranks;
}

HostGrid host_grid(Communicator& communicator, const std::string& machine) {
  std::map<std::string, std::size_t> found;
  HostGrid grid;
  const std::vector<std::string> machines = texts_of_ranks(communicator, machine);
  for (Rank rank = 0; rank < communicator.size(); ++rank) {
    const auto [at, is_new] =
        found.try_emplace(machines[static_cast<std::size_t>(rank)], grid.hosts.size());
    if (is_new) grid.hosts.emplace_back();
    if (rank == communicator.rank()) {
      grid.host = at->second;
      grid.place = grid.hosts[at->second].size();
    }
    grid.hosts[at->second].push_back(rank);
  }
  const auto differs = [&](const auto& ranks) { return ranks.size() != grid.hosts[0].size(); };
  if (std::ranges::none_of(grid.hosts, differs)) return grid;
  throw Exception(ErrorKind::unsupported,
                  fmt::format("inside: hosts have different numbers of ranks, {}; start the same "
                              "number on each, or leave inside out",
                              fmt::join(grid.hosts, " and ")));
}

}  // namespace gradwire
