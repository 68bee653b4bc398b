#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gradwire/base/error.h"
#include "gradwire/base/types.h"
#include "gradwire/topology/cluster.h"

namespace gradwire {

/// A network interface that a host would use, and where the doctor can be reached over it.
struct RailFacts {
  std::string interface;
  std::string address;   ///< Numeric: "10.77.0.1".
  std::string endpoint;  ///< For TCP: "10.77.0.1:41234"; empty: nothing could listen.
  std::string echo;      ///< For datagrams; may be empty too.
  int mtu = 0;
  int megabits = 0;  ///< Per second, as the interface has negotiated them; 0: not known.
  bool loopback = false;
};

/// What the resolver of a host says about a name.
struct NameFacts {
  std::string name;
  std::vector<std::string> addresses;
  std::string error;  ///< Empty if it has addresses.
};

/// What one host says about itself.
struct HostFacts {
  std::string host;           ///< Its own name for itself.
  std::string version;        ///< Of gradwire: "0.1.0".
  std::string build;          ///< Differs if the executables do.
  int protocol = 0;           ///< kProtocolVersion: what it says over connections.
  std::string torch;          ///< The PyTorch that gradwire train runs with: "2.13.0"; empty: none.
  std::string torch_problem;  ///< Why gradwire train does not start, though it is there.
  /// Of python3's gradwire and PyTorch, with the versions of both: empty if it has no gradwire.
  std::string python;
  std::string system;  ///< Kernel and C library: "Linux 6.1.0, glibc 2.36".
  int most_files = 0;  ///< Descriptors that a process may get: the hard limit.
  /// Bytes that TCP may buffer in a connection: the last of net.ipv4.tcp_rmem.
  int most_received = 0;
  int most_sent = 0;  ///< The same of tcp_wmem.
  /// Bytes of receive buffer that a program gets if it asks: net.core.rmem_max; 0: not known.
  int most_asked_for = 0;
  std::string interfaces;  ///< All there are, for people.
  std::vector<NameFacts> names;
  std::vector<RailFacts> rails;
  std::vector<std::string> problems;       ///< Errors in finding these out, as sentences.
  std::vector<std::string> port_problems;  ///< What keeps it from the job's port.
  /// Where it waits for the other hosts as rank 0 would: "10.77.0.1:29400"; empty: nowhere, or
  /// where `rails` say.
  std::string master;
  std::string master_problem;  ///< What keeps it from that.
  /// Interfaces that are faster than those to be used: "eth1 (10.1.0.1), 10 Gb/s".
  std::vector<std::string> faster;
  std::string token;  ///< For the echoes.
};

/// In place of a rail's number: where rank 0 waits for the others (HostFacts::master).
inline constexpr int kMasterDoor = -1;

/// How far TCP and datagrams from one host get at another, over one rail.
struct ReachFacts {
  enum class Outcome : std::uint8_t {
    reached,   ///< The doctor there has answered.
    silence,   ///< Nothing came back: packets are thrown away.
    refused,   ///< The host, or something before it, says no.
    no_route,  ///< Packets do not even leave.
    stranger,  ///< Somebody else answers.
  };
  int to = 0;
  int rail = 0;  ///< Or kMasterDoor, for TCP alone.
  Outcome outcome = Outcome::reached;
  std::string error;       ///< What the system said, unless reached.
  bool has_echo = true;    ///< Somebody there was to answer datagrams; else they were not tried.
  int largest_packet = 0;  ///< As MeasuredPath.
  int datagrams = 0;       ///< Of that size that were sent, to find out how many get lost.
  int lost = 0;
  bool detour = false;  ///< Packets leave by another interface than that of the rail.

  double loss() const { return datagrams == 0 ? 0 : static_cast<double>(lost) / datagrams; }
};

std::string to_json(const HostFacts& facts);
std::string to_json(const std::vector<ReachFacts>& facts);

/// Errors: invalid_argument, for what is not of this version of gradwire.
Result<HostFacts> parse_host_facts(const std::string& text);
Result<std::vector<ReachFacts>> parse_reach_facts(const std::string& text);

/// A host that is examined, and what is known of it.
struct Patient {
  std::string name;     ///< As the user says it.
  std::string failure;  ///< Why nothing is known; else empty.
  std::string remedy;   ///< Against that.
  std::optional<HostFacts> facts;
  std::optional<std::vector<ReachFacts>> reach;  ///< To each other host and rail.
  std::string mesh_error;                        ///< What a job would have said when it connected.
};

/// All that is known. Hosts are numbered from 0.
struct Examination {
  std::vector<Patient> patients;
  std::optional<Cluster> cluster;  ///< Measured, if the hosts could be connected.
  int ranks = 1;                   ///< Of the job that it is about.
};

/// Of the host that has the most.
std::size_t most_rails(const Examination& examination);

}  // namespace gradwire
