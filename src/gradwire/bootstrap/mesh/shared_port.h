#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "gradwire/bootstrap/handshake/listener.h"
#include "gradwire/bootstrap/mesh/port_switch.h"

namespace gradwire::bootstrap {

/// Returns the local socket name under which the processes of a job find the one that holds `port`
/// on this host. It is derived from the secret, so jobs do not mix and no other process can take
/// the name beforehand. Every user of the host can read it (/proc/net/unix), so the derivation is
/// slow (scrypt): each guess of the secret costs 20 ms and 8 MiB. That does not protect a short
/// secret forever, but it does one of 16 characters or more.
std::string shared_port_name(const std::string& secret, std::uint16_t port);

/// A listener behind a port that all processes of the job on this host share; it receives the
/// connections for this process. The first process that opens one becomes the switch
/// (bootstrap/mesh/port_switch.h). When it exits, another one takes over, and the port is closed
/// for a moment: a caller that is refused or cut off retries.
class SharedPortListener final : public Listener {
 public:
  /// `name`: shared_port_name(). Fails with invalid_argument (the port is used by another program),
  /// refused (a process of another user has the name), timeout or system.
  static Result<std::unique_ptr<SharedPortListener>> open(const net::HostNetwork& network,
                                                          std::string name, PortMember member,
                                                          net::Deadline deadline);

  const net::Socket& socket() const override { return mailbox_; }
  Result<std::optional<net::Accepted>> accept() override;

 private:
  SharedPortListener(const net::HostNetwork& network, std::string name, PortMember member)
      : network_(network), name_(std::move(name)), member_(std::move(member)) {}
  Status enroll(net::Deadline deadline);
  Result<bool> try_enroll(net::Deadline deadline);

  const net::HostNetwork& network_;
  std::string name_;
  PortMember member_;
  std::unique_ptr<PortSwitch> switch_;  ///< Set if this process is the switch.
  net::Socket mailbox_;
};

}  // namespace gradwire::bootstrap
