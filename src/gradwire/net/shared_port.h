#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "gradwire/net/door.h"
#include "gradwire/net/port_switch.h"

namespace gradwire {

/// The local name under which the processes of a job find who holds `port` on this host. Derived
/// from the secret, so that jobs do not mix and nobody else can take it beforehand. Every user of
/// the host can read it (/proc/net/unix), so it is derived slowly (scrypt): trying guesses of the
/// secret on it costs 20 ms and 8 MiB each, which a short secret does not survive for ever, but one
/// of 16 characters or more does.
std::string shared_port_name(const std::string& secret, std::uint16_t port);

/// A door behind a port that all of the job's processes on this host share: what is for this one
/// comes in here. The first of them that opens a door becomes the switch (net/port_switch.h); when
/// it ends, another one does, for which the port is closed for a moment: a caller that is refused,
/// or cut off, tries again.
class SharedPortDoor final : public Door {
 public:
  /// `name`: shared_port_name(). Errors: invalid_argument (another program has the port), refused
  /// (another user's process has the name), timeout, system.
  static Result<std::unique_ptr<SharedPortDoor>> open(std::string name, PortMember member,
                                                      Deadline deadline);

  const Socket& socket() const override { return mailbox_; }
  Result<std::optional<Accepted>> accept() override;

 private:
  SharedPortDoor(std::string name, PortMember member)
      : name_(std::move(name)), member_(std::move(member)) {}
  Status enrol(Deadline deadline);
  Result<bool> try_to_enrol(Deadline deadline);

  std::string name_;
  PortMember member_;
  std::unique_ptr<PortSwitch> switch_;  ///< If it is this process.
  Socket mailbox_;
};

}  // namespace gradwire
