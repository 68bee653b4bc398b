#include "gradwire/net/shm/neighbors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <openssl/rand.h>
#include <poll.h>

#include "gradwire/base/check.h"
#include "gradwire/net/local_socket.h"

namespace gradwire::net {
namespace {

constexpr std::size_t kMaxRingBytes = 2 * 1024 * 1024;
constexpr std::size_t kMinRingBytes = 16 * 1024;
/// Total of the incoming rings of one rank.
constexpr std::size_t kRingBytesPerRank = 4 * 1024 * 1024;

constexpr std::string_view kBell = "bell";

using Nonce = std::array<std::byte, 16>;

/// First message of the lower rank: a local socket's name and the nonce to send there.
struct Invitation {
  std::uint8_t valid = 0;
  Nonce name = {};
  Nonce nonce = {};
};

/// Message of the higher rank on the local socket, with the memory attached.
struct Delivery {
  Nonce nonce = {};
  std::uint64_t ring_bytes = 0;
};
static_assert(sizeof(Delivery) == 24);

/// Both ends are on one machine, so messages are sent in native layout.
template <class Message>
Bytes bytes_of(Message& message) {
  static_assert(std::is_trivially_copyable_v<Message>);
  return std::as_writable_bytes(std::span(&message, 1));
}

Nonce random_nonce() {
  Nonce nonce;
  GRADWIRE_CHECK(RAND_bytes(reinterpret_cast<unsigned char*>(nonce.data()), nonce.size()) == 1);
  return nonce;
}

std::string socket_name(const Nonce& name) {
  return fmt::format("gradwire-{:02x}", fmt::join(name, ""));
}

Error lost(const Candidate& candidate, const Transfer& transfer) {
  return {
      ErrorKind::disconnected,
      fmt::format("{} {} while it was joining", candidate.name,
                  transfer.ended && transfer.cause == 0 ? "closed the connection" : "was lost")};
}

Status send_to(const Candidate& candidate, ConstBytes message) {
  // Messages this small fit into the empty buffer of any new connection.
  const Transfer transfer = send_some(*candidate.connection, message);
  if (transfer.bytes == message.size()) return {};
  return tl::unexpected<Error>(lost(candidate, transfer));
}

Status receive_from(const Candidate& candidate, Bytes message, Deadline deadline) {
  while (!message.empty()) {
    if (!wait_for(*candidate.connection, POLLIN, deadline)) {
      return failure(ErrorKind::timeout, fmt::format("{} does not respond", candidate.name));
    }
    const Transfer transfer = receive_some(*candidate.connection, message);
    if (transfer.ended) return tl::unexpected<Error>(lost(candidate, transfer));
    message = message.subspan(transfer.bytes);
  }
  return {};
}

/// Yes or no, in one byte.
Status send_answer(const Candidate& candidate, bool yes) {
  const std::uint8_t answer = yes ? 1 : 0;
  return send_to(candidate, std::as_bytes(std::span(&answer, 1)));
}

Result<bool> receive_answer(const Candidate& candidate, Deadline deadline) {
  std::uint8_t answer = 0;
  GRADWIRE_RETURN_IF_ERROR(receive_from(candidate, bytes_of(answer), deadline));
  if (answer > 1) {
    return failure(
        ErrorKind::corrupted,
        fmt::format(
            "{} sent {}, expected yes (1) or no (0): does it run the same version of gradwire?",
            candidate.name, answer));
  }
  return answer == 1;
}

/// State of the exchange with one candidate.
struct Acquaintance {
  const Candidate& candidate;
  Invitation invitation = {};
  bool agreed = false;  ///< Both ends agree so far.
  Socket local;         ///< Connection that passes descriptors.
  std::optional<SharedPair> memory;
  Socket bell;

  bool is_below(Rank self) const { return candidate.rank < self; }
};

class Introduction {
 public:
  Introduction(Rank self, const std::vector<Candidate>& candidates, const Socket& bell)
      : self_(self), ring_bytes_(ring_bytes_for(candidates.size() + 1)), bell_(bell) {
    for (const Candidate& candidate : candidates) all_.push_back({.candidate = candidate});
  }

  /// Each step sends to all candidates before it waits for any, so there is no circular wait.
  Status run(Deadline deadline) {
    GRADWIRE_RETURN_IF_ERROR(invite(deadline));
    GRADWIRE_RETURN_IF_ERROR(answer(deadline));
    return conclude(deadline);
  }

  std::vector<Neighbor> take() {
    std::vector<Neighbor> neighbors;
    for (Acquaintance& a : all_) {
      if (!a.agreed) continue;
      a.memory->forget_descriptor();
      neighbors.push_back({a.candidate.rank, std::move(*a.memory), std::move(a.bell)});
    }
    return neighbors;
  }

 private:
  Status invite(Deadline deadline);
  Status answer(Deadline deadline);
  Status conclude(Deadline deadline);
  bool deliver(Acquaintance& a);
  void collect();
  void admit(Socket local);
  bool accept(Acquaintance& a, Socket memory, std::size_t ring_bytes);

  Rank self_;
  std::size_t ring_bytes_;
  const Socket& bell_;
  Socket listener_;
  std::vector<Acquaintance> all_;
};

Status Introduction::invite(Deadline deadline) {
  const Nonce name = random_nonce();
  auto listener = listen_locally(socket_name(name));
  const bool listens = listener && *listener;
  if (listens) listener_ = std::move(**listener);
  for (Acquaintance& a : all_) {
    if (a.is_below(self_)) continue;
    a.invitation = {.valid = listens, .name = name, .nonce = random_nonce()};
    GRADWIRE_RETURN_IF_ERROR(send_to(a.candidate, bytes_of(a.invitation)));
  }
  for (Acquaintance& a : all_) {
    if (!a.is_below(self_)) continue;
    GRADWIRE_RETURN_IF_ERROR(receive_from(a.candidate, bytes_of(a.invitation), deadline));
  }
  return {};
}

Status Introduction::answer(Deadline deadline) {
  for (Acquaintance& a : all_) {
    if (!a.is_below(self_)) continue;
    a.agreed = a.invitation.valid != 0 && deliver(a);
    GRADWIRE_RETURN_IF_ERROR(send_answer(a.candidate, a.agreed));
  }
  for (Acquaintance& a : all_) {
    if (a.is_below(self_)) continue;
    GRADWIRE_ASSIGN_OR_RETURN(const auto agreed, receive_answer(a.candidate, deadline));
    a.agreed = agreed;
  }
  return {};
}

Status Introduction::conclude(Deadline deadline) {
  collect();
  for (Acquaintance& a : all_) {
    if (a.is_below(self_)) continue;
    a.agreed = a.agreed && a.memory;
    GRADWIRE_RETURN_IF_ERROR(send_answer(a.candidate, a.agreed));
  }
  for (Acquaintance& a : all_) {
    if (!a.is_below(self_)) continue;
    GRADWIRE_ASSIGN_OR_RETURN(const auto agreed, receive_answer(a.candidate, deadline));
    a.agreed = agreed;
    if (!a.agreed) continue;
    std::optional<LocalMessage> message = receive_local(a.local);
    if (!message || !message->passed.valid()) {
      return failure(ErrorKind::system, fmt::format("cannot take over a descriptor of {}: are too "
                                                    "many open (ulimit -n)?",
                                                    a.candidate.name));
    }
    a.bell = std::move(message->passed);
  }
  return {};
}

/// Creates the memory and passes it to the lower rank.
bool Introduction::deliver(Acquaintance& a) {
  auto local = connect_locally(socket_name(a.invitation.name));
  if (!local || !*local) return false;
  auto memory = SharedPair::make(ring_bytes_);
  if (!memory) return false;
  const Delivery delivery{.nonce = a.invitation.nonce, .ring_bytes = ring_bytes_};
  std::array<char, sizeof delivery> text;
  std::memcpy(text.data(), &delivery, sizeof delivery);
  const bool sent = send_local(**local, {text.data(), text.size()}, memory->descriptor()) &&
                    send_local(**local, kBell, bell_);
  a.local = std::move(**local);
  a.memory = std::move(*memory);
  return sent;
}

/// Accepts the deliveries of all higher ranks that have confirmed; they must have arrived already.
void Introduction::collect() {
  while (listener_.valid()) {
    auto local = accept_locally(listener_);
    if (!local || !*local) return;
    if (is_trusted(**local)) admit(std::move(**local));
  }
}

void Introduction::admit(Socket local) {
  std::optional<LocalMessage> message = receive_local(local);
  Delivery delivery;
  if (!message || message->text.size() != sizeof delivery || !message->passed.valid()) return;
  std::memcpy(&delivery, message->text.data(), sizeof delivery);
  const auto invited = std::ranges::find_if(all_, [&](const Acquaintance& a) {
    return a.agreed && !a.is_below(self_) && a.invitation.nonce == delivery.nonce;
  });
  if (invited == all_.end()) return;
  invited->local = std::move(local);
  accept(*invited, std::move(message->passed), delivery.ring_bytes);
}

bool Introduction::accept(Acquaintance& a, Socket memory, std::size_t ring_bytes) {
  const bool possible = std::has_single_bit(ring_bytes) && ring_bytes >= page_bytes();
  if (!possible || ring_bytes > kMaxRingBytes) return false;
  std::optional<LocalMessage> message = receive_local(a.local);
  if (!message || message->text != kBell || !message->passed.valid()) return false;
  auto pair = SharedPair::take(std::move(memory), ring_bytes);
  if (!pair || !send_local(a.local, kBell, bell_)) return false;
  a.bell = std::move(message->passed);
  a.memory = std::move(*pair);
  return true;
}

}  // namespace

std::size_t ring_bytes_for(std::size_t ranks) {
  const std::size_t peers = std::max<std::size_t>(2, ranks) - 1;
  return std::clamp(std::bit_floor(kRingBytesPerRank / peers),
                    std::max(kMinRingBytes, page_bytes()), kMaxRingBytes);
}

Result<std::vector<Neighbor>> connect_neighbors(Rank self, const std::vector<Candidate>& candidates,
                                                const Socket& bell, Deadline deadline) {
  Introduction introduction(self, candidates, bell);
  GRADWIRE_RETURN_IF_ERROR(introduction.run(deadline));
  return introduction.take();
}

}  // namespace gradwire::net
