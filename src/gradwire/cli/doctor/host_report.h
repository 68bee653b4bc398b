#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gradwire/base/error.h"
#include "gradwire/base/types.h"
#include "gradwire/bootstrap/job.h"
#include "gradwire/bootstrap/mesh/rank_endpoint.h"
#include "gradwire/topology/cluster.h"

namespace gradwire::cli {

/// A network interface that a host would use, and the doctor's addresses on it.
struct RailInfo {
  std::string interface;
  std::string address;   ///< Numeric: "10.77.0.1".
  std::string endpoint;  ///< For TCP: "10.77.0.1:41234"; empty: could not listen.
  std::string echo;      ///< For datagrams; may also be empty.
  int mtu = 0;
  int megabits = 0;  ///< Negotiated rate in Mb/s; 0: unknown.
  bool loopback = false;
};

/// Result of resolving a name on a host.
struct ResolvedName {
  std::string name;
  std::vector<std::string> addresses;
  std::string error;  ///< Empty if it has addresses.
};

/// Report of one host about itself.
struct HostInfo {
  std::string host;            ///< Its own host name.
  std::string version;         ///< Version of gradwire: "0.1.0".
  std::string build;           ///< Checksums of the executables.
  int protocol = 0;            ///< kProtocolVersion.
  std::string torch;           ///< PyTorch version of gradwire train: "2.13.0"; empty: none.
  std::string torch_problem;   ///< Why an installed gradwire train does not start.
  std::string python_program;  ///< Program that jobs in Python would run: a path, or "python3".
  /// Versions of its gradwire and PyTorch; empty if it has no gradwire, or does not exist.
  std::string python;
  std::string system;  ///< Kernel and C library: "Linux 6.1.0, glibc 2.36".
  int max_files = 0;   ///< Hard limit of file descriptors per process.
  /// Maximum receive buffer of a TCP connection, in bytes: the last value of net.ipv4.tcp_rmem.
  int max_receive_buffer = 0;
  int max_send_buffer = 0;  ///< Maximum send buffer: of tcp_wmem.
  /// Maximum receive buffer that a program can request, in bytes: net.core.rmem_max; 0: unknown.
  int max_requested_buffer = 0;
  std::string interfaces;  ///< All interfaces, for messages.
  std::vector<ResolvedName> names;
  std::vector<RailInfo> rails;
  std::vector<std::string> problems;       ///< Errors of the examination.
  std::vector<std::string> port_problems;  ///< Why the job's port cannot be used.
  /// Address at which it listens as rank 0 would: "10.77.0.1:29400"; empty: none, or an endpoint of
  /// `rails`.
  std::string master;
  std::string master_problem;  ///< Why it cannot listen there.
  /// Interfaces that are faster than the rails: "eth1 (10.1.0.1), 10 Gb/s".
  std::vector<std::string> faster;
  std::vector<std::string> other_cards;  ///< See other_cards().
  std::string token;                     ///< Authenticates echo datagrams.
};

/// Pseudo rail number of the address where rank 0 listens (HostInfo::master).
inline constexpr int kMasterRail = -1;

/// Reachability of one host from another over one rail, by TCP and datagrams.
struct Reachability {
  enum class Outcome : std::uint8_t {
    reached,          ///< The doctor there answered.
    no_answer,        ///< No answer: packets are dropped.
    refused,          ///< The host, or a firewall before it, refuses.
    no_route,         ///< No route to the host.
    unauthenticated,  ///< The peer is not a doctor of this job.
  };
  int to = 0;
  int rail = 0;  ///< Rail, or kMasterRail (TCP only).
  Outcome outcome = Outcome::reached;
  std::string error;       ///< Error text, unless reached.
  bool has_echo = true;    ///< An EchoServer answers datagrams there; else they were not tried.
  int largest_packet = 0;  ///< Value of MeasuredPath::largest_packet, in bytes.
  int datagrams = 0;       ///< Datagrams of that size sent to measure loss.
  int lost = 0;
  bool detour = false;  ///< Packets leave by another interface than the rail's.

  double loss() const { return datagrams == 0 ? 0 : static_cast<double>(lost) / datagrams; }
};

std::string to_json(const HostInfo& info);
std::string to_json(const std::vector<Reachability>& info);

/// Fail with invalid_argument if the text is not of this version of gradwire.
Result<HostInfo> parse_host_info(const std::string& text);
Result<std::vector<Reachability>> parse_reachability(const std::string& text);

/// An examined host, and the results.
struct HostReport {
  std::string name;     ///< Name that the user gave.
  std::string failure;  ///< Why it was not examined; else empty.
  std::string remedy;   ///< Remedy for `failure`.
  std::optional<HostInfo> info;
  std::optional<std::vector<Reachability>> reach;  ///< Paths to each other host and rail.
  std::string mesh_error;                          ///< Error of a job that connects there.
};

/// All results. Hosts are numbered from 0.
struct ClusterReport {
  std::vector<HostReport> reports;
  std::optional<topology::Cluster> cluster;  ///< Measured if the hosts could be connected.
  int ranks = 1;                             ///< Number of ranks of the job.
  int port = 0;                              ///< Port of all its listeners; 0: free ones.
};

/// Returns the maximum number of rails of a host.
std::size_t max_rails(const ClusterReport& cluster_report);

/// Adds to `info` the versions of the program that needs libtorch and of the package of
/// `info.python_program`. Runs both; takes about a second, at most a few.
void read_installed_versions(HostInfo& info);

/// Returns the CRC-32C of a file in hexadecimal; empty if it cannot be read.
std::string checksum_of(const std::string& path);

/// Examines this host, except for endpoints and echoes. Resolves `names`. `python`: the program
/// that jobs in Python would run.
HostInfo read_host_info(const std::vector<std::string>& names, const std::string& python);

/// Returns the interfaces that this rank of the job would use. If they cannot be determined
/// (unresolved master, unknown interface), adds the error to `problems` and returns the first
/// usable interface. The rest can then still be examined.
std::vector<bootstrap::RailEndpoint> find_rails(const bootstrap::Job& job,
                                                std::vector<std::string>& problems);

/// Returns the rate that a network card has negotiated, in Mb/s; 0 if the link is down, and for
/// virtual interfaces, whose value is meaningless.
int negotiated_megabits(const std::string& interface);

/// Returns the cards of other engines in a rank with this environment, if they are not `rails`, or
/// not all used at once: "Gloo lo". `default_of_gloo`: the card of the address of the host's name.
std::vector<std::string> other_cards(const std::vector<std::string>& rails,
                                     const bootstrap::Environment& environment,
                                     const std::string& default_of_gloo);

/// Returns the card that Gloo takes on this host by default.
std::string default_card_of_gloo();

/// Returns text about network cards at least twice as fast as each of the rails.
std::vector<std::string> faster_interfaces(const std::vector<bootstrap::RailEndpoint>& rails);

}  // namespace gradwire::cli
