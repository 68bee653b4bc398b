#include "gradwire/schedule/cost/incast.h"

#include <algorithm>
#include <bit>
#include <tuple>
#include <vector>

#include "gradwire/schedule/cost/constants.h"

namespace gradwire {
namespace {

using Number = MessageGraph::Number;

/// A rank's receives through one port, which are the messages between hosts or those inside its
/// host; then the sender.
struct Stream {
  Number rank = 0;
  std::uint32_t port = 0;
  Rank sender = -1;

  auto operator<=>(const Stream&) const = default;
};

bool is_receive(const MessageGraph::Op& op) {
  return op.kind == OpKind::recv || op.kind == OpKind::recv_reduce;
}

Stream stream_of(const MessageGraph& graph, const LinkMap& links, Number op) {
  return {graph.op(op).rank, links.ops[op].port, graph.op(op).peer};
}

/// Returns all streams in order, each once.
std::vector<Stream> streams_of(const MessageGraph& graph, const LinkMap& links) {
  std::vector<Stream> streams;
  for (Number op = 0; op < graph.size(); ++op) {
    if (is_receive(graph.op(op))) streams.push_back(stream_of(graph, links, op));
  }
  std::ranges::sort(streams);
  const auto repeated = std::ranges::unique(streams);
  streams.erase(repeated.begin(), repeated.end());
  return streams;
}

double factor_between_hosts(std::size_t senders, bool forwards, const IncastCosts& costs) {
  const double beyond =
      static_cast<double>(std::clamp<std::size_t>(senders, 2, fitted::kIncastMaxStreams)) - 2;
  return 1 + (forwards ? costs.forwarding : costs.direct) * beyond;
}

}  // namespace

void add_incast(const MessageGraph& graph, int ranks, const IncastCosts& costs, LinkMap& links) {
  const auto rounds = static_cast<std::size_t>(std::bit_width(static_cast<unsigned>(ranks - 1)));
  const bool forwards = graph.longest_chain() > 2;
  const std::vector<Stream> streams = streams_of(graph, links);
  for (Number op = 0; op < graph.size(); ++op) {
    if (!is_receive(graph.op(op))) continue;
    const Stream own = stream_of(graph, links, op);
    const auto [first, last] = std::ranges::equal_range(
        streams, std::tuple(own.rank, own.port), {},
        [](const Stream& stream) { return std::tuple(stream.rank, stream.port); });
    const auto senders = static_cast<std::size_t>(last - first);
    if (senders <= rounds) continue;
    links.ops[op].incast =
        own.port >= links.hosts ? 1 + costs.inside : factor_between_hosts(senders, forwards, costs);
  }
}

}  // namespace gradwire
