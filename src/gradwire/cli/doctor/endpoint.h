#pragma once

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gradwire/cli/doctor/facts.h"
#include "gradwire/cli/probe/echo.h"
#include "gradwire/comm/job.h"
#include "gradwire/comm/rank_place.h"
#include "gradwire/net/gate.h"

namespace gradwire {

/// The purpose of the doctor's own connections (net/handshake.h).
inline constexpr const char* kDoctorPurpose = "doctor";

/// The job's master address and port: the first host's doctor tries to be there, as rank 0 will, or
/// it need not, as the hosts have met there.
enum class MasterPort : std::uint8_t { examined, in_use };

/// Where other hosts' doctors can reach this one, over each rail: by TCP, where it shakes hands and
/// hangs up, and by datagrams. At the job's port if it has one, which the doctors of a host share;
/// datagrams nobody can hand on, so the first of them takes those for all. Threads of its own.
class Endpoint {
 public:
  /// Adds to `facts` where that is, for each of `rails`, and what stood in the way.
  Endpoint(const Job& job, const std::vector<RailPlace>& rails, MasterPort port, HostFacts& facts);
  ~Endpoint();
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

 private:
  void listen_at_free_ports(const std::vector<RailPlace>& rails, HostFacts& facts);
  void share_port(const Job& job, const std::vector<RailPlace>& rails, HostFacts& facts);
  void stand_in_for_rank_0(const Job& job, const std::vector<RailPlace>& rails, HostFacts& facts);
  void take_datagrams(const Job& job, const std::vector<RailPlace>& rails, HostFacts& facts);
  void run();

  Doors doors_;
  std::vector<Socket> datagram_sockets_;
  std::unique_ptr<Gate> gate_;
  std::unique_ptr<Echo> echo_;
  Socket stop_;
  std::thread thread_;
};

}  // namespace gradwire
