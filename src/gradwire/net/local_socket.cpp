#include "gradwire/net/local_socket.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "gradwire/base/check.h"

namespace gradwire::net {
namespace {

constexpr int kBacklog = 4096;

struct LocalAddress {
  sockaddr_un address = {};
  socklen_t size = 0;

  /// An abstract name begins with a zero byte and is delimited by the address size.
  explicit LocalAddress(const std::string& name) {
    GRADWIRE_CHECK(!name.empty() && name.size() < sizeof address.sun_path);
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path + 1, name.data(), name.size());
    size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  }

  const sockaddr* data() const { return reinterpret_cast<const sockaddr*>(&address); }
};

Socket make_local_socket() {
  return Socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}

/// Buffer for one descriptor attached to a message.
struct Ancillary {
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> bytes = {};
};

void attach(msghdr& header, Ancillary& room, int descriptor) {
  header.msg_control = room.bytes.data();
  header.msg_controllen = room.bytes.size();
  cmsghdr* control = CMSG_FIRSTHDR(&header);
  control->cmsg_level = SOL_SOCKET;
  control->cmsg_type = SCM_RIGHTS;
  control->cmsg_len = CMSG_LEN(sizeof descriptor);
  std::memcpy(CMSG_DATA(control), &descriptor, sizeof descriptor);
}

Socket detach(msghdr& header) {
  const cmsghdr* control = CMSG_FIRSTHDR(&header);
  const bool any = control != nullptr && control->cmsg_level == SOL_SOCKET &&
                   control->cmsg_type == SCM_RIGHTS && control->cmsg_len == CMSG_LEN(sizeof(int));
  if (!any) return {};
  int descriptor = -1;
  std::memcpy(&descriptor, CMSG_DATA(control), sizeof descriptor);
  return Socket(descriptor);
}

}  // namespace

Result<std::optional<Socket>> listen_locally(const std::string& name) {
  Socket socket = make_local_socket();
  if (!socket.valid()) return system_failure("cannot make a local socket");
  const LocalAddress at(name);
  if (::bind(socket.descriptor(), at.data(), at.size) != 0) {
    if (errno == EADDRINUSE) return std::nullopt;
    return system_failure("cannot name a local socket");
  }
  if (::listen(socket.descriptor(), kBacklog) != 0) {
    return system_failure("cannot listen at a local socket");
  }
  return socket;
}

Result<std::optional<Socket>> accept_locally(const Socket& listener) {
  Socket socket(::accept4(listener.descriptor(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (socket.valid()) return socket;
  if (errno == EMFILE || errno == ENFILE)
    return system_failure("cannot accept a connection on a local socket");
  return std::nullopt;
}

Result<std::optional<Socket>> connect_locally(const std::string& name) {
  Socket socket = make_local_socket();
  if (!socket.valid()) return system_failure("cannot make a local socket");
  const LocalAddress at(name);
  if (::connect(socket.descriptor(), at.data(), at.size) != 0) {
    if (errno == ECONNREFUSED || errno == EAGAIN || errno == EINTR) return std::nullopt;
    return system_failure("cannot connect to a local socket of another process");
  }
  if (!is_trusted(socket)) {
    return failure(ErrorKind::refused,
                   fmt::format("a process of another user has the local socket \"{}\"", name));
  }
  return socket;
}

bool is_trusted(const Socket& connection) {
  ucred other = {};
  socklen_t size = sizeof other;
  if (getsockopt(connection.descriptor(), SOL_SOCKET, SO_PEERCRED, &other, &size) != 0) {
    return false;
  }
  return other.uid == ::geteuid() || other.uid == 0;
}

bool send_local(const Socket& connection, std::string_view message, const Socket& passed) {
  GRADWIRE_CHECK(!message.empty() && message.size() <= kMaxLocalMessage);
  iovec piece = {const_cast<char*>(message.data()), message.size()};  // Not written to.
  msghdr header = {};
  header.msg_iov = &piece;
  header.msg_iovlen = 1;
  Ancillary room;
  if (passed.valid()) attach(header, room, passed.descriptor());
  ssize_t sent;
  do {
    sent = ::sendmsg(connection.descriptor(), &header, MSG_NOSIGNAL | MSG_DONTWAIT);
  } while (sent < 0 && errno == EINTR);
  return sent == static_cast<ssize_t>(message.size());
}

std::optional<LocalMessage> receive_local(const Socket& connection) {
  LocalMessage message;
  message.text.resize(kMaxLocalMessage);
  iovec piece = {message.text.data(), message.text.size()};
  Ancillary room;
  msghdr header = {};
  header.msg_iov = &piece;
  header.msg_iovlen = 1;
  header.msg_control = room.bytes.data();
  header.msg_controllen = room.bytes.size();
  ssize_t got;
  do {
    got = ::recvmsg(connection.descriptor(), &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  } while (got < 0 && errno == EINTR);
  if (got < 0 && is_not_now(errno)) return std::nullopt;
  message.text.resize(static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
  message.ended = got <= 0;  // Empty messages are never sent.
  if (got > 0) message.passed = detach(header);
  return message;
}

}  // namespace gradwire::net
