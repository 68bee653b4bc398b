#pragma once

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gradwire/bootstrap/gate.h"
#include "gradwire/bootstrap/job.h"
#include "gradwire/bootstrap/rank_place.h"
#include "gradwire/cli/doctor/facts.h"
#include "gradwire/cli/probe/echo.h"

namespace gradwire {

/// The purpose of the doctor's own connections (bootstrap/handshake.h).
inline constexpr const char* kDoctorPurpose = "doctor";

/// examined: the first host's doctor listens at the job's master address and port, as rank 0 will.
/// in_use: it does not, as the rendezvous is there.
enum class MasterPort : std::uint8_t { examined, in_use };

/// Endpoint of this host's doctor for those of other hosts, over each rail: by TCP, where it
/// completes the handshake and closes, and by datagrams. It is at the job's port if the job has
/// one. The doctors of a host share that port; datagrams cannot be handed over, so that the first
/// doctor answers them for all. Runs its own threads.
class Endpoint {
 public:
  /// Adds to `facts` the addresses for each of `rails`, and the problems found.
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
