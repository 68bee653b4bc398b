#pragma once

#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "gradwire/base/error.h"
#include "gradwire/net/handshake.h"
#include "gradwire/net/local_socket.h"

namespace gradwire {

/// What a process that shares a port tells the switch, as its first message.
struct PortMember {
  Destination destination;               ///< Whose connections it takes.
  std::vector<SocketAddress> addresses;  ///< Where to listen for them.
};

std::string encode(const PortMember& member);
std::optional<PortMember> decode_port_member(std::string_view message);

/// Listens, for all of a job's processes on this host, on the one port they share, on a thread of
/// its own. It reads the first message of each connection without taking it from the stream and
/// hands the connection to the process it is for. It trusts nobody and decides nothing: the process
/// then shakes hands (net/handshake.h). Bounded like a Gate.
///
/// Who has the local name `name` is the switch; the others connect to that name, send a PortMember
/// and get an answer (empty text after its first byte: welcome; else why not), then connections.
class PortSwitch {
 public:
  /// Nothing if another process is the switch. Error: system.
  static Result<std::unique_ptr<PortSwitch>> start(const std::string& name);

  /// Stops. The others notice, and one of them becomes the switch.
  ~PortSwitch();
  PortSwitch(const PortSwitch&) = delete;
  PortSwitch& operator=(const PortSwitch&) = delete;

 private:
  class Loop;

  PortSwitch(Socket members, Socket stop);

  Socket stop_;
  std::thread thread_;
};

}  // namespace gradwire
