#pragma once

#include <memory>
#include <string>
#include <vector>

#include "gradwire/bootstrap/handshake_server.h"
#include "gradwire/bootstrap/job.h"
#include "gradwire/bootstrap/rank_endpoint.h"
#include "gradwire/cli/doctor/host_report.h"
#include "gradwire/cli/probe/echo.h"

namespace gradwire {

/// The purpose of the doctor's own connections (bootstrap/handshake.h).
inline constexpr const char* kDoctorPurpose = "doctor";

/// examined: the first host's doctor listens at the job's master address and port, as rank 0 will.
/// in_use: it does not, as the rendezvous is there.
enum class MasterPort : std::uint8_t { examined, in_use };

/// Answers the doctors of other hosts for this host's doctor, over each rail: by TCP, where it
/// completes the handshake and closes, and by datagrams. It is at the job's port if the job has
/// one. The doctors of a host share that port; datagrams cannot be handed over, so that the first
/// doctor answers them for all. Runs its own threads.
class ReachabilityServer {
 public:
  /// Adds to `info` the addresses for each of `rails`, and the problems found.
  ReachabilityServer(const HostNetwork& network, const Job& job,
                     const std::vector<RailEndpoint>& rails, MasterPort port, HostInfo& info);
  ReachabilityServer(const ReachabilityServer&) = delete;
  ReachabilityServer& operator=(const ReachabilityServer&) = delete;

 private:
  void listen_at_free_ports(const std::vector<RailEndpoint>& rails, HostInfo& info);
  void share_port(const Job& job, const std::vector<RailEndpoint>& rails, HostInfo& info);
  void listen_as_rank_0(const Job& job, const std::vector<RailEndpoint>& rails, HostInfo& info);
  void bind_datagram_sockets(const Job& job, const std::vector<RailEndpoint>& rails,
                             HostInfo& info);
  void run(const Socket& stop);

  const HostNetwork& network_;
  Listeners listeners_;
  std::vector<Socket> datagram_sockets_;
  std::unique_ptr<HandshakeServer> handshakes_;
  std::unique_ptr<EchoServer> echo_;
  std::unique_ptr<LoopThread> thread_;
};

}  // namespace gradwire
