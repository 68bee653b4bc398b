#include "gradwire/bootstrap/mesh/shared_port.h"

#include <array>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <openssl/evp.h>
#include <poll.h>

#include "gradwire/base/check.h"

namespace gradwire::bootstrap {
namespace {

/// The switch responds immediately, unless it is being replaced or its process is stopped.
constexpr Duration kPatience = std::chrono::seconds(10);

/// scrypt (RFC 7914) with 8 MiB: about 20 ms for each listener that a process opens, and for each
/// guess of an attacker that reads the name.
constexpr std::uint64_t kScryptCost = 1 << 13;
constexpr std::uint64_t kScryptBlocks = 8;
constexpr std::uint64_t kScryptLanes = 1;
constexpr std::uint64_t kScryptMaxMemory = 32 << 20;

}  // namespace

std::string shared_port_name(const std::string& secret, std::uint16_t port) {
  const std::string salt = fmt::format("gradwire port {}", port);
  std::array<unsigned char, 16> digest;
  const int made =
      EVP_PBE_scrypt(secret.data(), secret.size(),
                     reinterpret_cast<const unsigned char*>(salt.data()), salt.size(), kScryptCost,
                     kScryptBlocks, kScryptLanes, kScryptMaxMemory, digest.data(), digest.size());
  GRADWIRE_CHECK(made == 1);
  return fmt::format("gradwire-{}-{:02x}", port, fmt::join(digest, ""));
}

Result<std::unique_ptr<SharedPortListener>> SharedPortListener::open(
    const net::HostNetwork& network, std::string name, PortMember member, net::Deadline deadline) {
  std::unique_ptr<SharedPortListener> listener(
      new SharedPortListener(network, std::move(name), std::move(member)));
  GRADWIRE_RETURN_IF_ERROR(listener->enroll(deadline));
  return listener;
}

Result<std::optional<net::Accepted>> SharedPortListener::accept() {
  std::optional<net::LocalMessage> message = net::receive_local(mailbox_);
  if (!message) return std::nullopt;
  if (message->ended) {
    GRADWIRE_RETURN_IF_ERROR(enroll(net::Deadline::after(network_.clock(), kPatience)));
    return std::nullopt;
  }
  if (!message->passed.valid()) return std::nullopt;
  const net::SocketAddress from = net::peer_address(message->passed);
  return net::Accepted{std::move(message->passed), from};
}

Status SharedPortListener::enroll(net::Deadline deadline) {
  mailbox_.close();
  for (;;) {
    GRADWIRE_ASSIGN_OR_RETURN(const auto done, try_enroll(deadline));
    if (done) return {};
    if (deadline.passed()) {
      return failure(ErrorKind::timeout,
                     "the process that holds the job's port on this host does not respond");
    }
    network_.pause(std::chrono::milliseconds(1));  // There is no event for a new listener.
  }
}

/// Returns false if the switch has just exited or is not listening yet.
Result<bool> SharedPortListener::try_enroll(net::Deadline deadline) {
  switch_.reset();
  GRADWIRE_ASSIGN_OR_RETURN(auto taken, PortSwitch::start(network_, name_));
  switch_ = std::move(taken);
  GRADWIRE_ASSIGN_OR_RETURN(auto connection, net::connect_locally(name_));
  if (!connection.has_value() || !net::send_local(*connection, encode(member_))) return false;
  if (!net::wait_for(*connection, POLLIN, deadline)) return false;
  const std::optional<net::LocalMessage> answer = net::receive_local(*connection);
  if (!answer || answer->ended) return false;
  if (answer->text != "+") {
    return failure(ErrorKind::invalid_argument, answer->text.substr(1));
  }
  mailbox_ = std::move(*connection);
  return true;
}

}  // namespace gradwire::bootstrap
