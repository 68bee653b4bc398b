#include "gradwire/trace/trace_collection.h"

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "gradwire/base/bytes.h"
#include "gradwire/base/error.h"
#include "gradwire/base/tags.h"
#include "gradwire/base/types.h"
#include "gradwire/comm/communicator.h"

namespace gradwire {
namespace {

class CommunicatorPeers final : public TracePeers {
 public:
  explicit CommunicatorPeers(std::shared_ptr<Communicator> communicator)
      : communicator_(std::move(communicator)) {}

  Rank rank() const override { return communicator_->rank(); }
  int size() const override { return communicator_->size(); }

  void send(ConstBytes bytes, Rank to) override {
    communicator_->send({bytes.data(), bytes.size(), DataType::uint8}, to, kTraceTag).wait();
  }
  void recv(Bytes bytes, Rank from) override {
    communicator_->recv({bytes.data(), bytes.size(), DataType::uint8}, from, kTraceTag).wait();
  }

 private:
  std::shared_ptr<Communicator> communicator_;
};

}  // namespace

std::unique_ptr<TracePeers> trace_peers(std::shared_ptr<Communicator> communicator) {
  return std::make_unique<CommunicatorPeers>(std::move(communicator));
}

namespace {

/// Number of round trips to rank 0: the minimum of this many is close to the true minimum.
constexpr int kQuestions = 16;

/// A rank's trace has a few MiB; a larger length is corrupt.
constexpr std::uint64_t kMaxBytes = std::uint64_t{1} << 30;

using Note = std::array<std::byte, 8>;

Note note_of(std::uint64_t value) {
  Note note;
  store_little_endian(note.data(), value);
  return note;
}

void answer(TracePeers& peers, const Clock& clock, Rank rank) {
  for (int i = 0; i < kQuestions; ++i) {
    Note note;
    peers.recv(note, rank);
    note = note_of(static_cast<std::uint64_t>(clock.now().time_since_epoch().count()));
    peers.send(note, rank);
  }
}

ClockReading ask(TracePeers& peers, const Clock& clock) {
  std::vector<ClockSample> samples(kQuestions);
  for (auto& sample : samples) {
    Note note{};
    sample.sent = clock.now();
    peers.send(note, 0);
    peers.recv(note, 0);
    sample.received = clock.now();
    const auto theirs = load_little_endian<std::uint64_t>(note.data());
    sample.theirs = Time(Duration(static_cast<std::int64_t>(theirs)));
  }
  return read_clock(samples);
}

RankTrace receive(TracePeers& peers, Rank rank) {
  Note note;
  peers.recv(note, rank);
  const auto size = load_little_endian<std::uint64_t>(note.data());
  if (size > kMaxBytes) {
    throw Exception(
        ErrorKind::corrupted,
        fmt::format("rank {} announced an impossible trace size: {} bytes", rank, size));
  }
  std::vector<std::byte> bytes(size);
  peers.recv(bytes, rank);
  return value_or_throw(decode_trace(bytes));
}

}  // namespace

ClockReading read_clock(TracePeers& peers, const Clock& clock) {
  if (peers.rank() != 0) return ask(peers, clock);
  for (Rank rank = 1; rank < peers.size(); ++rank) answer(peers, clock, rank);
  return {.at = clock.now()};
}

void gather_traces(TracePeers& peers, const RankTrace& own,
                   const std::function<void(RankTrace)>& take) {
  if (peers.rank() != 0) {
    const auto bytes = encode_trace(own);
    peers.send(note_of(bytes.size()), 0);
    peers.send(bytes, 0);
    return;
  }
  take(own);
  for (Rank rank = 1; rank < peers.size(); ++rank) take(receive(peers, rank));
}

}  // namespace gradwire
