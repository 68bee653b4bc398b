#include "gradwire/engine/operations/in_flight_table.h"

#include <algorithm>

namespace gradwire::engine {
namespace {

/// Scratch blocks kept for the next operations.
constexpr std::size_t kSpare = 4;

/// The top bit distinguishes messages from collectives; the lowest bit is the direction.
std::uint32_t channel_of(int tag, Rank from, Rank to) {
  return OperationKey::kMessage | (static_cast<std::uint32_t>(tag) << 1) | (from > to ? 1u : 0u);
}

}  // namespace

InFlightOperation& InFlightTable::add(OperationRequest request) {
  Rank pair = -1;
  const OperationKey key = next_key(request, pair);
  in_flight_.push_back(std::make_unique<InFlightOperation>(key, pair, std::move(request)));
  InFlightOperation& flight = *in_flight_.back();
  Scratch scratch = take_scratch(flight.operation.scratch_bytes());
  flight.scratch = std::move(scratch.memory);
  flight.scratch_capacity = scratch.capacity;
  flight.operation.bind_scratch(flight.scratch.get());
  return flight;
}

OperationKey InFlightTable::next_key(const OperationRequest& request, Rank& pair) {
  if (request.tag < 0) {
    const auto lane = static_cast<std::uint32_t>(request.lane);
    return {lane, posted_[{-1, request.group, lane}]++, request.group};
  }
  const CompiledProgram::Exchange& exchange = request.program->exchanges.front();
  pair = exchange.peer;
  const bool sends = !exchange.sends.empty();
  const std::uint32_t channel = channel_of(request.tag, sends ? self_ : pair, sends ? pair : self_);
  return {channel, posted_[{pair, request.group, channel}]++, request.group};
}

InFlightOperation* InFlightTable::find(OperationKey key, Rank peer) const {
  for (const auto& flight : in_flight_) {
    if (flight->is(key, peer)) return flight.get();
  }
  return nullptr;
}

OperationKey InFlightTable::next_from(Rank peer, const OperationRequest& receive) const {
  const std::uint32_t channel = channel_of(receive.tag, peer, self_);
  const auto at = posted_.find({peer, receive.group, channel});
  return {channel, at == posted_.end() ? 0 : at->second, receive.group};
}

bool InFlightTable::was_posted(OperationKey key, Rank peer) const {
  const auto at = posted_.find({key.is_message() ? peer : -1, key.group, key.channel});
  return at != posted_.end() && key.sequence < at->second;
}

std::unique_ptr<InFlightOperation> InFlightTable::remove(const InFlightOperation& flight) {
  const auto at = std::ranges::find(in_flight_, &flight, &std::unique_ptr<InFlightOperation>::get);
  std::unique_ptr<InFlightOperation> removed = std::move(*at);
  in_flight_.erase(at);
  if (removed->scratch) {
    spare_.push_back({std::move(removed->scratch), removed->scratch_capacity});
    if (spare_.size() > kSpare) spare_.erase(spare_.begin());
  }
  return removed;
}

bool InFlightTable::has_earlier_in_lane(const InFlightOperation& flight) const {
  const OperationKey key = flight.operation.key();
  return std::ranges::any_of(in_flight_, [&](const auto& other) {
    const OperationKey& theirs = other->operation.key();
    return theirs.group == key.group && theirs.channel == key.channel &&
           theirs.sequence < key.sequence;
  });
}

template <class Condition>
std::vector<std::unique_ptr<InFlightOperation>> InFlightTable::remove_if(
    const Condition& condition) {
  std::vector<std::unique_ptr<InFlightOperation>> removed;
  std::erase_if(in_flight_, [&](std::unique_ptr<InFlightOperation>& flight) {
    if (!condition(*flight)) return false;
    removed.push_back(std::move(flight));
    return true;
  });
  return removed;
}

std::vector<std::unique_ptr<InFlightOperation>> InFlightTable::remove_with(Rank peer) {
  return remove_if(
      [&](const InFlightOperation& flight) { return flight.exchange_index(peer) >= 0; });
}

std::vector<std::unique_ptr<InFlightOperation>> InFlightTable::remove_unanswered_receives() {
  return remove_if([](const InFlightOperation& flight) { return flight.is_unanswered_receive(); });
}

InFlightTable::Scratch InFlightTable::take_scratch(std::size_t bytes) {
  if (bytes == 0) return {};
  const auto fits = [&](const Scratch& spare) { return spare.capacity >= bytes; };
  const auto at = std::ranges::find_if(spare_, fits);
  if (at == spare_.end()) return {std::make_unique_for_overwrite<std::byte[]>(bytes), bytes};
  Scratch scratch = std::move(*at);
  spare_.erase(at);
  return scratch;
}

}  // namespace gradwire::engine
