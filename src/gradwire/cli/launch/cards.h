#pragma once

#include <string>
#include <string_view>

#include "gradwire/cli/launch/launch.h"

/// The network cards of GRADWIRE_INTERFACE, for engines other than gradwire's own.
namespace gradwire::cli {

/// Commands of a POSIX shell on a rank's host. They choose the cards as topology::choose_interfaces
/// does, and export kCardVariables, except those that are set already. Do nothing without
/// GRADWIRE_INTERFACE. An entry that matches no card is passed on as it is: the engine refuses it.
/// Leaves the names in $cards.
extern const std::string_view kCardScript;

/// Variables by which engines take cards. Gloo needs complete names, NCCL takes them after '='. The
/// devices of RDMA of a card (`mlx5_0:1`) are named too: UCX and NCCL would else use none, or all.
inline constexpr const char* kCardVariables[] = {"GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME",
                                                 "NCCL_SOCKET_NTHREADS", "NCCL_IB_HCA",
                                                 "UCX_NET_DEVICES"};

/// Returns true if the launcher's own value of a variable applies to the ranks on all hosts.
bool is_of_all_ranks(std::string_view variable);

/// Returns what kCardScript exports on this host. Throws Exception(system).
VariableList card_variables(const std::string& interfaces);

/// Returns the names of the cards that `interfaces` selects on this host, a comma list; unchanged
/// if it selects none here.
std::string complete_names(const std::string& interfaces);

}  // namespace gradwire::cli
