#include "gradwire/net/socket.h"

#include <algorithm>
#include <cstring>

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "gradwire/base/check.h"
#include "gradwire/net/poll_set.h"

namespace gradwire::net {
namespace {

constexpr int kBacklog = 4096;

/// Ignores failures: all options set by it only tune, and a kernel may lack them.
void set_option(const Socket& socket, int level, int option, int value) {
  setsockopt(socket.descriptor(), level, option, &value, sizeof value);
}

Socket make_stream_socket(int family) {
  Socket socket(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP));
  // Handshakes are small messages, too. Accepted connections inherit the option from their
  // listener.
  if (socket.valid()) set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  return socket;
}

tl::unexpected<Error> listen_failure(const SocketAddress& address, int cause) {
  const std::string at = address.to_string();
  if (cause == EADDRINUSE) {
    return failure(ErrorKind::invalid_argument,
                   fmt::format("cannot listen at {}: another program already does (an earlier job "
                               "that still runs?); stop it or choose another port",
                               at));
  }
  if (cause == EADDRNOTAVAIL) {
    return failure(ErrorKind::invalid_argument,
                   fmt::format("cannot listen at {}: that is not an address of this host", at));
  }
  if (cause == EACCES) {
    return failure(ErrorKind::invalid_argument,
                   fmt::format("cannot listen at {}: not permitted; choose a port above 1023", at));
  }
  return system_failure("cannot listen at " + at, cause);
}

/// Binds to a local address before connecting. connect() chooses the port, so that connections to
/// different destinations can share one.
bool bind_source(const Socket& socket, const SocketAddress& source) {
  if (!source.valid()) return true;
  set_option(socket, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1);
  return ::bind(socket.descriptor(), source.data(), source.size()) == 0;
}

using GetName = int (*)(int, sockaddr*, socklen_t*);

SocketAddress name_of_end(const Socket& socket, GetName get_name) {
  sockaddr_storage storage = {};
  socklen_t size = sizeof storage;
  auto* at = reinterpret_cast<sockaddr*>(&storage);
  if (get_name(socket.descriptor(), at, &size) != 0) return {};
  return SocketAddress(at, size);
}

int pending_error(const Socket& socket) {
  int code = 0;
  socklen_t size = sizeof code;
  getsockopt(socket.descriptor(), SOL_SOCKET, SO_ERROR, &code, &size);
  return code;
}

template <class Call>
Transfer transfer(Call call) {
  for (;;) {
    const ssize_t count = call();
    if (count > 0) return {.bytes = static_cast<std::size_t>(count)};
    if (count == 0) return {.ended = true};
    if (is_not_now(errno)) return {};
    if (errno != EINTR) return {.ended = true, .cause = errno};
  }
}

bool is_of_one_connection(int cause) {
  return cause == ECONNABORTED || cause == EPROTO || cause == EINTR || cause == EPERM ||
         cause == ENETDOWN || cause == EHOSTUNREACH || cause == ENETUNREACH;
}

}  // namespace

Socket::Socket() = default;

Socket::Socket(int descriptor) : descriptor_(descriptor) {}

Socket::Socket(std::unique_ptr<SimulatedSocket> simulated) : simulated_(std::move(simulated)) {}

Socket::Socket(Socket&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)), simulated_(std::move(other.simulated_)) {}

Socket& Socket::operator=(Socket&& other) noexcept {
  if (this != &other) {
    close();
    descriptor_ = std::exchange(other.descriptor_, -1);
    simulated_ = std::move(other.simulated_);
  }
  return *this;
}

Socket::~Socket() {
  close();
}

void Socket::close() {
  simulated_.reset();
  if (descriptor_ >= 0) ::close(std::exchange(descriptor_, -1));
}

void tune_stream(const Socket& socket, Duration dead_after, int unsent_low_water) {
  set_option(socket, IPPROTO_TCP, TCP_NOTSENT_LOWAT, unsent_low_water);
  constexpr char kCubic[] = "cubic";
  setsockopt(socket.descriptor(), IPPROTO_TCP, TCP_CONGESTION, kCubic, sizeof kCubic - 1);
  if (dead_after > Duration::zero()) {
    set_option(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, milliseconds_of(dead_after));
  }
}

void keep_alive(const Socket& socket, Duration dead_after) {
  constexpr int kProbes = 2;  // One per second, after the first one without a response.
  const auto seconds = std::chrono::ceil<std::chrono::seconds>(dead_after).count();
  set_option(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(socket, IPPROTO_TCP, TCP_KEEPIDLE, std::max(1, static_cast<int>(seconds) - kProbes));
  set_option(socket, IPPROTO_TCP, TCP_KEEPINTVL, 1);
  set_option(socket, IPPROTO_TCP, TCP_KEEPCNT, kProbes);
  set_option(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, milliseconds_of(dead_after));
}

Status bind_to_interface(const Socket& socket, const std::string& interface) {
  if (setsockopt(socket.descriptor(), SOL_SOCKET, SO_BINDTODEVICE, interface.data(),
                 static_cast<socklen_t>(interface.size())) == 0) {
    return {};
  }
  return system_failure("cannot bind a connection to interface " + interface);
}

Result<Socket> listen_on(const SocketAddress& address) {
  GRADWIRE_CHECK(address.valid());
  if (address.is_any()) {
    return failure(
        ErrorKind::invalid_argument,
        fmt::format("refusing to listen at {}, which means every interface: set one address",
                    address.to_string()));
  }
  Socket socket = make_stream_socket(address.family());
  if (!socket.valid()) return system_failure("cannot make a socket");
  // Connections of an earlier job in TIME_WAIT must not block the port.
  set_option(socket, SOL_SOCKET, SO_REUSEADDR, 1);
  if (::bind(socket.descriptor(), address.data(), address.size()) != 0 ||
      ::listen(socket.descriptor(), kBacklog) != 0) {
    return listen_failure(address, errno);
  }
  return socket;
}

Result<std::uint16_t> free_port(const SocketAddress& address) {
  GRADWIRE_ASSIGN_OR_RETURN(const Socket socket, listen_on(address));
  return local_address(socket).port();
}

Result<std::optional<Accepted>> accept_one(const Socket& listener) {
  if (SimulatedSocket* simulated = listener.simulated()) return simulated->accept();
  for (;;) {
    sockaddr_storage storage = {};
    socklen_t size = sizeof storage;
    auto* at = reinterpret_cast<sockaddr*>(&storage);
    Socket socket(::accept4(listener.descriptor(), at, &size, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (socket.valid()) return Accepted{std::move(socket), SocketAddress(at, size)};
    if (is_not_now(errno)) return std::nullopt;
    if (!is_of_one_connection(errno)) return system_failure("cannot accept a connection");
  }
}

Result<Socket> start_connect(const SocketAddress& to, const SocketAddress& source,
                             const std::string& interface) {
  Socket socket = make_stream_socket(to.family());
  if (!socket.valid()) {
    return system_failure("cannot make a socket (raise the limit of open files: ulimit -n)");
  }
  // Without permission for that, routing decides.
  if (!interface.empty()) (void)bind_to_interface(socket, interface);
  if (!bind_source(socket, source)) {
    return system_failure(fmt::format("cannot connect from {}", source.host()), errno,
                          ErrorKind::disconnected);
  }
  if (::connect(socket.descriptor(), to.data(), to.size()) != 0 && errno != EINPROGRESS) {
    return system_failure("cannot connect to " + to.to_string(), errno, ErrorKind::disconnected);
  }
  return socket;
}

Result<Socket> connect_to(const SocketAddress& to, Deadline deadline, const SocketAddress& source) {
  Result<Socket> socket = start_connect(to, source);
  if (!socket) return socket;
  if (!wait_for(*socket, POLLOUT, deadline)) {
    return failure(ErrorKind::timeout, fmt::format("{} did not respond in time", to.to_string()));
  }
  if (const int cause = pending_error(*socket); cause != 0) {
    return system_failure("cannot connect to " + to.to_string(), cause, ErrorKind::disconnected);
  }
  return socket;
}

Transfer send_some(const Socket& socket, ConstBytes bytes) {
  if (SimulatedSocket* simulated = socket.simulated()) return simulated->send(bytes);
  return transfer([&] {
    return ::send(socket.descriptor(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  });
}

Transfer receive_some(const Socket& socket, Bytes bytes) {
  if (SimulatedSocket* simulated = socket.simulated()) return simulated->receive(bytes);
  return transfer(
      [&] { return ::recv(socket.descriptor(), bytes.data(), bytes.size(), MSG_DONTWAIT); });
}

SocketAddress local_address(const Socket& socket) {
  if (const SimulatedSocket* simulated = socket.simulated()) return simulated->local_address();
  return name_of_end(socket, &::getsockname);
}

SocketAddress peer_address(const Socket& socket) {
  if (const SimulatedSocket* simulated = socket.simulated()) return simulated->peer_address();
  return name_of_end(socket, &::getpeername);
}

bool connected_to_itself(const Socket& socket) {
  const SocketAddress peer = peer_address(socket);
  return peer.valid() && peer == local_address(socket);
}

bool has_ended(const Socket& socket) {
  std::byte byte;
  if (SimulatedSocket* simulated = socket.simulated()) return simulated->peek({&byte, 1}).ended;
  return transfer([&] { return ::recv(socket.descriptor(), &byte, 1, MSG_PEEK | MSG_DONTWAIT); })
      .ended;
}

bool wait_for(const Socket& socket, short events, Deadline deadline) {
  PollSet set;
  const std::size_t index = set.add(socket, events);
  for (;;) {
    const bool last = deadline.passed();
    set.wait(deadline);
    if (set.returned_events(index) != 0) return true;
    if (last) return false;
  }
}

std::string describe_broken_connection(int cause, const std::string& name, Duration dead_after) {
  switch (cause) {
    case 0:
      return fmt::format("{} closed the connection", name);
    case ECONNRESET:
    case EPIPE:
      return fmt::format("the connection to {} was reset: its process has probably died", name);
    case ETIMEDOUT:
      return fmt::format("the link to {} is dead: it took no data{}", name,
                         dead_after > Duration::zero()
                             ? fmt::format(" for {} ms", milliseconds_of(dead_after))
                             : "");
    case EHOSTUNREACH:
    case ENETUNREACH:
    case ENETDOWN:
      return fmt::format("the link to {} is cut: {}", name, errno_text(cause));
    default:
      return fmt::format("the connection to {} broke: {}", name, errno_text(cause));
  }
}

namespace {

/// Returns true if everything except this end's FIN (which counts as one byte) is acknowledged.
bool all_delivered(int descriptor) {
  int unacknowledged = 0;
  return ::ioctl(descriptor, SIOCOUTQ, &unacknowledged) != 0 || unacknowledged <= 1;
}

/// Returns true if closing the descriptor can no longer lose data sent to the peer.
bool may_close(int descriptor) {
  return !discard_input(descriptor) || all_delivered(descriptor);
}

}  // namespace

bool discard_input(int descriptor) {
  constexpr std::size_t kMaxDiscard = 1 << 30;
  for (;;) {
    const ssize_t count = ::recv(descriptor, nullptr, kMaxDiscard, MSG_TRUNC | MSG_DONTWAIT);
    if (count > 0) continue;
    if (count < 0 && errno == EINTR) continue;
    return count < 0 && is_not_now(errno);
  }
}

void linger(std::vector<pollfd> streams, Deadline deadline) {
  for (;;) {
    std::erase_if(streams, [](const pollfd& stream) { return may_close(stream.fd); });
    if (streams.empty() || deadline.passed()) return;
    ::poll(streams.data(), streams.size(), 1);
  }
}

}  // namespace gradwire::net
