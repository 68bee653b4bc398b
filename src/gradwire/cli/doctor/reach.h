#pragma once

#include <memory>
#include <string>
#include <vector>

#include "gradwire/bootstrap/handshake/handshake_server.h"
#include "gradwire/bootstrap/job.h"
#include "gradwire/bootstrap/mesh/rank_endpoint.h"
#include "gradwire/cli/doctor/host_report.h"
#include "gradwire/cli/probe/echo.h"
#include "gradwire/net/host_network.h"

namespace gradwire::cli {

/// Tries to reach every other host's ReachabilityServer from each rail of this host, and the
/// address where rank 0 listens. Tries TCP to all concurrently, then datagrams to one after the
/// other.
/// `others[i]`: report of host i; nullopt: none. Waits at most `patience` for TCP.
std::vector<Reachability> reach_all(const net::HostNetwork& network, const bootstrap::Job& job,
                                    const std::vector<bootstrap::RailEndpoint>& rails,
                                    const std::vector<std::optional<HostInfo>>& others,
                                    Duration patience);

/// The purpose of the doctor's own connections (bootstrap/handshake/handshake.h).
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
  ReachabilityServer(const net::HostNetwork& network, const bootstrap::Job& job,
                     const std::vector<bootstrap::RailEndpoint>& rails, MasterPort port,
                     HostInfo& info);
  ReachabilityServer(const ReachabilityServer&) = delete;
  ReachabilityServer& operator=(const ReachabilityServer&) = delete;

 private:
  void listen_at_free_ports(const std::vector<bootstrap::RailEndpoint>& rails, HostInfo& info);
  void share_port(const bootstrap::Job& job, const std::vector<bootstrap::RailEndpoint>& rails,
                  HostInfo& info);
  void listen_as_rank_0(const bootstrap::Job& job,
                        const std::vector<bootstrap::RailEndpoint>& rails, HostInfo& info);
  void bind_datagram_sockets(const bootstrap::Job& job,
                             const std::vector<bootstrap::RailEndpoint>& rails, HostInfo& info);
  void run(const net::Socket& stop);

  const net::HostNetwork& network_;
  bootstrap::Listeners listeners_;
  std::vector<net::Socket> datagram_sockets_;
  std::unique_ptr<bootstrap::HandshakeServer> handshakes_;
  std::unique_ptr<EchoServer> echo_;
  std::unique_ptr<net::LoopThread> thread_;
};

}  // namespace gradwire::cli
