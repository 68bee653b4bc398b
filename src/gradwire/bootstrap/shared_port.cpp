#include "gradwire/bootstrap/shared_port.h"

#include <array>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <openssl/evp.h>
#include <poll.h>

#include "gradwire/base/check.h"

namespace gradwire {
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

Result<std::unique_ptr<SharedPortListener>> SharedPortListener::open(const HostNetwork& network,
                                                                     std::string name,
                                                                     PortMember member,
                                                                     Deadline deadline) {
  std::unique_ptr<SharedPortListener> listener(
      new SharedPortListener(network, std::move(name), std::move(member)));
  if (Status enrolled = listener->enroll(deadline); !enrolled) {
    return tl::unexpected<Error>(enrolled.error());
  }
  return listener;
}

Result<std::optional<Accepted>> SharedPortListener::accept() {
  std::optional<LocalMessage> message = receive_local(mailbox_);
  if (!message) return std::nullopt;
  if (message->ended) {
    if (Status enrolled = enroll(Deadline::after(network_.clock(), kPatience)); !enrolled) {
      return tl::unexpected<Error>(enrolled.error());
    }
    return std::nullopt;
  }
  if (!message->passed.valid()) return std::nullopt;
  const SocketAddress from = peer_address(message->passed);
  return Accepted{std::move(message->passed), from};
}

Status SharedPortListener::enroll(Deadline deadline) {
  mailbox_.close();
  for (;;) {
    const Result<bool> done = try_enroll(deadline);
    if (!done) return tl::unexpected<Error>(done.error());
    if (*done) return {};
    if (deadline.passed()) {
      return failure(ErrorKind::timeout,
                     "the process that holds the job's port on this host does not respond");
    }
    network_.pause(std::chrono::milliseconds(1));  // There is no event for a new listener.
  }
}

/// Returns false if the switch has just exited or is not listening yet.
Result<bool> SharedPortListener::try_enroll(Deadline deadline) {
  switch_.reset();
  auto taken = PortSwitch::start(network_, name_);
  if (!taken) return tl::unexpected<Error>(taken.error());
  switch_ = std::move(*taken);
  auto connection = connect_locally(name_);
  if (!connection) return tl::unexpected<Error>(connection.error());
  if (!connection->has_value() || !send_local(**connection, encode(member_))) return false;
  if (!wait_for(**connection, POLLIN, deadline)) return false;
  const std::optional<LocalMessage> answer = receive_local(**connection);
  if (!answer || answer->ended) return false;
  if (answer->text != "+") {
    return failure(ErrorKind::invalid_argument, answer->text.substr(1));
  }
  mailbox_ = std::move(**connection);
  return true;
}

}  // namespace gradwire
