#include "gradwire/bootstrap/mesh/port_switch.h"

#include <algorithm>
#include <charconv>
#include <list>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/socket.h>

#include "gradwire/bootstrap/handshake/refusal_log.h"
#include "gradwire/net/descriptors.h"
#include "gradwire/net/poll_set.h"

namespace gradwire::bootstrap {
namespace {

/// Maximum connections that have not sent their first message; the oldest is dropped for a new one.
/// They use at most 1/4 of this process's descriptors, because the process is also a rank.
constexpr std::size_t kMaxUnread = 1024;
constexpr std::size_t kPartForUnread = 4;

/// Pause of a listener that cannot accept: poll(2) would report it again immediately.
constexpr Duration kRest = std::chrono::milliseconds(50);

/// Maximum accepts in one call, so that a flood of new connections does not delay pending ones.
constexpr int kAcceptsAtOnce = 64;

/// Makes poll(2) report the socket only when `bytes` bytes are available or the stream has ended.
/// Otherwise an unauthenticated peer that sends one byte and stays would make the loop spin,
/// because peeking consumes nothing.
void report_from(const net::Socket& socket, std::size_t bytes) {
  const int low_water = static_cast<int>(bytes);
  setsockopt(socket.descriptor(), SOL_SOCKET, SO_RCVLOWAT, &low_water, sizeof low_water);
}

/// Returns the first received bytes, up to `most`, without consuming them.
std::vector<std::byte> peek(const net::Socket& socket, std::size_t most) {
  std::vector<std::byte> bytes(most);
  const ssize_t count =
      ::recv(socket.descriptor(), bytes.data(), bytes.size(), MSG_PEEK | MSG_DONTWAIT);
  bytes.resize(static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
  return bytes;
}

/// Stops listening immediately, even if a forked child still has the descriptor.
void stop_listening(net::Socket& listener) {
  ::shutdown(listener.descriptor(), SHUT_RDWR);
  listener.close();
}

}  // namespace

std::string encode(const PortMember& member) {
  std::vector<std::string> addresses;
  for (const net::SocketAddress& address : member.addresses)
    addresses.push_back(address.to_string());
  return fmt::format("{} {} {}", member.destination.service, member.destination.rank,
                     fmt::join(addresses, " "));
}

std::optional<PortMember> decode_port_member(std::string_view message) {
  std::vector<std::string> words;
  while (!message.empty()) {
    const std::size_t end = std::min(message.find(' '), message.size());
    words.emplace_back(message.substr(0, end));
    message.remove_prefix(std::min(end + 1, message.size()));
  }
  PortMember member;
  const auto number = [](const std::string& text, auto& value) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    return error == std::errc() && end == text.data() + text.size();
  };
  if (words.size() < 3 || !number(words[0], member.destination.service) ||
      !number(words[1], member.destination.rank)) {
    return std::nullopt;
  }
  for (std::size_t i = 2; i < words.size(); ++i) {
    const auto address = net::SocketAddress::parse(words[i]);
    if (!address) return std::nullopt;
    member.addresses.push_back(*address);
  }
  return member;
}

/// State and event loop of the switch thread.
class PortSwitch::Loop {
 public:
  Loop(const net::HostNetwork& network, net::Socket members)
      : network_(network), clock_(network.clock()), member_listener_(std::move(members)) {}

  /// Closed in this order, so that the process that takes over the name finds the port free.
  ~Loop() {
    for (ListeningSocket& listener : listeners_) stop_listening(listener.socket);
    stop_listening(member_listener_);
  }

  void run(const net::Socket& stop) {
    net::PollSet set;
    for (;;) {
      set.clear();
      const std::size_t stop_index = set.add(stop, POLLIN);
      set.wait(watch(set));
      if (set.returned_events(stop_index) != 0) return;
      advance_members(set);
      advance_unread(set);
      for (ListeningSocket& listener : listeners_) {
        if (set.returned_events(listener.poll_index) != 0) accept_from(listener);
      }
      if (set.returned_events(members_index_) != 0) accept_members();
    }
  }

 private:
  struct ListeningSocket {
    net::SocketAddress address;
    net::Socket socket;
    std::size_t poll_index = 0;
    Time paused_until = {};
  };
  struct Member {
    net::Socket socket;
    std::optional<Destination> destination;  ///< None until its PortMember is received.
    std::size_t poll_index = 0;
  };
  struct Unread {
    net::Socket socket;
    net::SocketAddress from;
    net::Deadline deadline;
    std::size_t poll_index = 0;
  };

  net::Deadline watch(net::PollSet& set) {
    Time next = clock_.now() + std::chrono::hours(1);
    members_index_ = set.add(unless_paused(member_listener_, members_paused_until_, next), POLLIN);
    for (ListeningSocket& listener : listeners_) {
      listener.poll_index =
          set.add(unless_paused(listener.socket, listener.paused_until, next), POLLIN);
    }
    for (Member& member : members_) member.poll_index = set.add(member.socket, POLLIN);
    for (Unread& one : unread_) one.poll_index = set.add(one.socket, POLLIN);
    if (!unread_.empty()) next = std::min(next, unread_.front().deadline.at());
    return net::Deadline(clock_, next);
  }

  /// Returns the socket or, while it pauses, one that poll(2) ignores.
  const net::Socket& unless_paused(const net::Socket& socket, Time until, Time& next) const {
    if (until <= clock_.now()) return socket;
    next = std::min(next, until);
    return none_;
  }

  /// Out of descriptors: drops the oldest unread connection, or else pauses the listener.
  void make_room(Time& paused_until) {
    if (unread_.empty()) {
      paused_until = clock_.now() + kRest;
    } else {
      unread_.pop_front();
    }
  }

  void accept_members() {
    for (;;) {
      auto accepted = net::accept_locally(member_listener_);
      if (!accepted) return make_room(members_paused_until_);
      if (!accepted->has_value()) return;
      if (net::is_trusted(**accepted)) members_.push_back({.socket = std::move(**accepted)});
    }
  }

  void advance_members(const net::PollSet& set) {
    std::erase_if(members_, [&](Member& member) {
      if (set.returned_events(member.poll_index) == 0) return false;
      const auto message = net::receive_local(member.socket);
      return message && (message->ended || !add_member(member, message->text));
    });
  }

  /// Returns false if the member violates the protocol.
  bool add_member(Member& member, const std::string& text) {
    const auto decoded = decode_port_member(text);
    if (!decoded || member.destination) return false;
    for (const net::SocketAddress& address : decoded->addresses) {
      if (const Status listening = listen_at(address); !listening) {
        return net::send_local(member.socket, "-" + listening.error().message);
      }
    }
    member.destination = decoded->destination;
    return net::send_local(member.socket, "+");
  }

  Status listen_at(const net::SocketAddress& address) {
    const bool known = std::ranges::any_of(
        listeners_, [&](const ListeningSocket& listener) { return listener.address == address; });
    if (known) return {};
    GRADWIRE_ASSIGN_OR_RETURN(auto socket, network_.listen_on(address));
    listeners_.push_back({.address = address, .socket = std::move(socket)});
    return {};
  }

  void accept_from(ListeningSocket& listener) {
    for (int i = 0; i < kAcceptsAtOnce; ++i) {
      auto accepted = net::accept_one(listener.socket);
      if (!accepted) return make_room(listener.paused_until);
      if (!accepted->has_value()) return;
      if (unread_.size() >= max_unread_) unread_.pop_front();
      report_from((**accepted).socket, kHelloSize);
      unread_.push_back({.socket = std::move((**accepted).socket),
                         .from = (**accepted).from,
                         .deadline = net::Deadline::after(clock_, kHandshakeTimeout)});
    }
  }

  void advance_unread(const net::PollSet& set) {
    std::erase_if(unread_, [&](Unread& one) {
      if (set.returned_events(one.poll_index) != 0) {
        pass_on(one);
        return true;
      }
      if (!one.deadline.passed()) return false;
      refusals_.add(one.from.to_string() + " did not send its first message in time");
      return true;
    });
  }

  /// If the destination is absent or its queue is full, the connection is closed, and the caller
  /// retries.
  void pass_on(Unread& one) {
    const std::vector<std::byte> hello = peek(one.socket, kHelloSize);
    const auto destination = destination_of(hello);
    if (!destination && hello.size() < kHelloSize) return;
    report_from(one.socket, 1);
    for (const Member& member : members_) {
      // A message that is not a valid hello goes to any member, whose handshake reports the error.
      const bool fits = !destination || member.destination == *destination;
      if (fits && member.destination && net::send_local(member.socket, "c", one.socket)) return;
    }
  }

  const net::HostNetwork& network_;
  const Clock& clock_;
  net::Socket member_listener_;
  net::Socket none_;
  std::size_t members_index_ = 0;
  Time members_paused_until_ = {};
  std::size_t max_unread_ = std::min(kMaxUnread, net::part_of_descriptors(kPartForUnread));
  std::vector<ListeningSocket> listeners_;
  std::list<Member> members_;
  std::list<Unread> unread_;  ///< Oldest first.
  RefusalLog refusals_;
};

Result<std::unique_ptr<PortSwitch>> PortSwitch::start(const net::HostNetwork& network,
                                                      const std::string& name) {
  GRADWIRE_ASSIGN_OR_RETURN(auto listener, net::listen_locally(name));
  if (!listener.has_value()) return nullptr;
  auto loop = std::make_shared<Loop>(network, std::move(*listener));
  GRADWIRE_ASSIGN_OR_RETURN(
      auto thread, net::LoopThread::start(
                       network, "cannot share a port",
                       [loop = std::move(loop)](const net::Socket& stop) { loop->run(stop); }));
  return std::unique_ptr<PortSwitch>(new PortSwitch(std::move(thread)));
}

}  // namespace gradwire::bootstrap
