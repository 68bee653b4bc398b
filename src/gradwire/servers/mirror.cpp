#include "gradwire/servers/mirror.h"

#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "gradwire/base/check.h"
#include "gradwire/base/error.h"
#include "gradwire/servers/messages.h"

namespace gradwire::servers {
namespace {

/// Begins a copy. Its integers follow, then the values and the states of the unit.
struct Copy {
  static constexpr std::int64_t kEnd = -1;
  std::int64_t unit = kEnd;  ///< kEnd: the server ends, and nothing follows.
  std::int64_t version = 0;
  std::int64_t integers = 0;  ///< Those of a Dealing; 0: none.
};

/// Either side may compute, or wait for workers, for as long as it likes.
const OperationOptions kPatient{.timeout = Duration::max()};

std::size_t bytes_of(const LentSpan& span) {
  return span.count * size_of(span.type);
}

/// The values and the states of a unit.
std::vector<LentSpan> parts_of(ServedShards& shards, std::size_t unit) {
  std::vector<LentSpan> parts{shards.values(unit)};
  for (LentSpan& state : shards.states_of(unit)) parts.push_back(std::move(state));
  return parts;
}

LentSpan bytes_in(std::vector<std::byte>& memory) {
  return {memory.data(), memory.size(), DataType::uint8, nullptr};
}

std::vector<std::int64_t> encode(const Dealing& dealing) {
  std::vector<std::int64_t> integers = encode(dealing.progress);
  integers.insert(integers.begin(), {dealing.samples, dealing.epochs});
  return integers;
}

Dealing decode_dealing(const std::vector<std::int64_t>& integers) {
  if (integers.size() < 2) throw Exception(ErrorKind::corrupted, "a copy of a server is damaged");
  return {integers[0], integers[1], decode_progress({integers.begin() + 2, integers.end()})};
}

}  // namespace

struct MirroredShards::Message {
  std::size_t unit = 0;
  Copy head;
  std::vector<std::int64_t> integers;
  std::vector<std::byte> parts;
  Reply acknowledgement;
  Work acknowledged;
};

MirroredShards::MirroredShards(ServedShards& shards, Options options)
    : shards_(shards), options_(std::move(options)), units_(shards.units()) {
  GRADWIRE_CHECK(options_.every >= 1);
}

void MirroredShards::step(std::size_t unit, const LentSpan& gradient, double rate) {
  Unit& stepped = units_[unit];
  take_acknowledgements(false);
  while (!lost_ && stepped.version - stepped.mirrored >= options_.every) {
    if (!stepped.in_flight) send(unit);
    take_acknowledgements(true);
  }
  shards_.step(unit, gradient, rate);
  ++stepped.version;
  // At half of the way, so that no step waits for an acknowledgement that comes in time.
  if (!stepped.in_flight && stepped.version - stepped.sent >= (options_.every + 1) / 2) send(unit);
}

void MirroredShards::loaded(std::size_t unit) {
  shards_.loaded(unit);
  send(unit);
}

void MirroredShards::begun_at(std::size_t unit, std::int64_t version) {
  shards_.begun_at(unit, version);
  units_[unit].version = version;
  send(unit);
}

void MirroredShards::states_loaded() {
  shards_.states_loaded();
  for (std::size_t unit = 0; unit < units_.size(); ++unit) send(unit);
}

void MirroredShards::dealing_begun() {
  send(0);
  while (!lost_ && !in_flight_.empty()) take_acknowledgements(true);
}

/// Sends a copy of the unit, which may be stepped meanwhile.
void MirroredShards::send(std::size_t unit) {
  if (lost_) return;
  const auto message = std::make_shared<Message>();
  message->unit = unit;
  if (const auto dealing = options_.dealing ? options_.dealing() : std::nullopt) {
    message->integers = encode(*dealing);
  }
  message->head = {.unit = static_cast<std::int64_t>(unit),
                   .version = units_[unit].version,
                   .integers = static_cast<std::int64_t>(message->integers.size())};
  for (const LentSpan& part : parts_of(shards_, unit)) {
    const auto* const bytes = static_cast<const std::byte*>(part.data);
    message->parts.insert(message->parts.end(), bytes, bytes + bytes_of(part));
  }
  const Work sent = options_.pairs->coalesced([&](Communicator& together) {
    LentSpan head = lend_message(message->head), parts = bytes_in(message->parts);
    head.keep_alive = parts.keep_alive = message;
    together.send(head, options_.mirror, kMirrorTag);
    if (!message->integers.empty()) {
      together.send({message->integers.data(), message->integers.size(), DataType::int64, message},
                    options_.mirror, kMirrorTag);
    }
    together.send(parts, options_.mirror, kMirrorTag);
  });
  sent.drive_in_background();
  LentSpan acknowledgement = lend_message(message->acknowledgement);
  acknowledgement.keep_alive = message;
  message->acknowledged =
      options_.pairs->recv(acknowledgement, options_.mirror, kMirroredTag, kPatient);
  message->acknowledged.drive_in_background();
  units_[unit].sent = units_[unit].version;
  units_[unit].in_flight = true;
  in_flight_.push_back(message);
}

void MirroredShards::take_acknowledgements(bool wait_for_one) {
  while (!lost_ && !in_flight_.empty() &&
         (wait_for_one || in_flight_.front()->acknowledged.done())) {
    const std::shared_ptr<Message> arrived = in_flight_.front();
    try {
      arrived->acknowledged.wait();
    } catch (const Exception& e) {
      return lose(e.what());
    }
    in_flight_.pop_front();
    wait_for_one = false;
    Unit& unit = units_[arrived->unit];
    unit.mirrored = arrived->head.version;
    unit.in_flight = unit.sent != unit.mirrored;
  }
}

void MirroredShards::lose(const std::string& why) {
  lost_ = true;
  in_flight_.clear();
  if (options_.warn) options_.warn("this server has no mirror any more: " + why);
}

void MirroredShards::end() {
  if (lost_) return;
  Copy last;
  try {
    options_.pairs->send(lend_message(last), options_.mirror, kMirrorTag).wait();
  } catch (const Exception&) {
    // Nobody needs a copy any more.
  }
}

Mirror::Mirror(std::shared_ptr<Communicator> pairs, Rank primary, ServedShards& shards)
    : pairs_(std::move(pairs)), primary_(primary), shards_(shards) {
  copy_.versions.resize(shards.units());
  thread_ = std::thread([this] { receive_all(); });
}

Mirror::~Mirror() {
  thread_.join();
}

void Mirror::receive_all() {
  bool left = false;
  try {
    while (receive_one()) {
    }
    left = true;
  } catch (const std::exception&) {
    // The other server is lost. A copy that has arrived in part is not used.
  }
  const std::lock_guard lock(mutex_);
  (left ? left_ : lost_) = true;
  ended_.notify_all();
}

/// Returns false if the other server has ended.
bool Mirror::receive_one() {
  Copy head;
  pairs_->recv(lend_message(head), primary_, kMirrorTag, kPatient).wait();
  if (head.unit == Copy::kEnd) return false;
  const auto unit = static_cast<std::size_t>(head.unit);
  if (unit >= shards_.units() || head.integers < 0) {
    throw Exception(ErrorKind::corrupted, "a server sends a copy of a unit that there is not");
  }
  std::vector<std::int64_t> integers(static_cast<std::size_t>(head.integers));
  if (!integers.empty()) {
    pairs_->recv({integers.data(), integers.size(), DataType::int64, nullptr}, primary_, kMirrorTag)
        .wait();
  }
  const std::vector<LentSpan> parts = parts_of(shards_, unit);
  std::size_t bytes = 0;
  for (const LentSpan& part : parts) bytes += bytes_of(part);
  std::vector<std::byte> arrived(bytes);
  pairs_->recv(bytes_in(arrived), primary_, kMirrorTag).wait();
  const std::byte* next = arrived.data();
  for (const LentSpan& part : parts) {
    std::memcpy(part.data, next, bytes_of(part));
    next += bytes_of(part);
  }
  copy_.versions[unit] = head.version;
  if (!integers.empty()) copy_.dealing = decode_dealing(integers);
  Reply acknowledgement{head.version};
  pairs_->send(lend_message(acknowledgement), primary_, kMirroredTag).wait();
  return true;
}

Mirror::Adopted Mirror::adopt() {
  std::unique_lock lock(mutex_);
  ended_.wait(lock, [this] { return lost_ || left_; });
  if (left_) {
    throw Exception(ErrorKind::mismatch,
                    fmt::format("the server on rank {} has ended, and was not lost", primary_));
  }
  return copy_;
}

}  // namespace gradwire::servers
