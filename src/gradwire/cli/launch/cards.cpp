#include "gradwire/cli/launch/cards.h"

#include <algorithm>
#include <sstream>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "gradwire/bootstrap/failure_report.h"
#include "gradwire/cli/launch/captured.h"
#include "gradwire/cli/launch/process.h"
#include "gradwire/topology/interfaces.h"

namespace gradwire::cli {

// /proc is that of the network namespace; `ip` is not on every host. NCCL uses one thread for each
// connection, which its documentation sets to 4 for generic networks faster than a core.
const std::string_view kCardScript = R"sh(
if [ -n "${GRADWIRE_INTERFACE-}" ]; then
  cards= devices=
  for entry in $(printf %s "$GRADWIRE_INTERFACE" | tr , ' '); do
    names=$(sed -n 's/^ *\([^ :]*\):.*/\1/p' /proc/net/dev | grep -Fx -e "$entry" || {
      tail -n +2 /proc/net/route | cut -f 1
      sed 's/.* //' /proc/net/if_inet6 2>/dev/null
    } | sort -u | while read -r name; do
      case $name in "$entry"*) echo "${#name} $name";; esac
    done | LC_ALL=C sort -k 1,1n -k 2 | cut -d ' ' -f 2)
    for name in ${names:-$entry}; do
      case ,$cards, in *,"$name",*) continue;; esac
      cards=$cards${cards:+,}$name
      for device in "/sys/class/net/$name/device/infiniband/"*; do
        [ -e "$device" ] || continue
        port=$(cat "/sys/class/net/$name/dev_port")
        devices=$devices${devices:+,}${device##*/}:$((port + 1))
      done
    done
  done
  export GLOO_SOCKET_IFNAME="${GLOO_SOCKET_IFNAME-$cards}"
  export NCCL_SOCKET_IFNAME="${NCCL_SOCKET_IFNAME-=$cards}"
  case $cards in *,*) export NCCL_SOCKET_NTHREADS="${NCCL_SOCKET_NTHREADS-4}";; esac
  [ -z "$devices" ] || export NCCL_IB_HCA="${NCCL_IB_HCA-=$devices}"
  export UCX_NET_DEVICES="${UCX_NET_DEVICES-$devices${devices:+,}$cards}"
fi
)sh";

bool is_of_all_ranks(std::string_view variable) {
  if (variable == "GRADWIRE_SECRET" || variable == kProcessMark ||
      variable == bootstrap::kReportVariable)
    return false;
  return variable.starts_with("GRADWIRE_") || std::ranges::count(kCardVariables, variable) > 0;
}

VariableList card_variables(const std::string& interfaces) {
  if (interfaces.empty()) return {};
  const std::string print = fmt::format("env | grep -E '^({})='", fmt::join(kCardVariables, "|"));
  const Captured ran = value_or_throw(
      run_captured({"sh", "-c", fmt::format("GRADWIRE_INTERFACE=$1\n{}{}", kCardScript, print),
                    "sh", interfaces},
                   std::chrono::seconds(10)));
  VariableList variables;
  std::istringstream lines(ran.out);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t equals = line.find('=');
    variables.emplace_back(line.substr(0, equals), line.substr(equals + 1));
  }
  return variables;
}

std::string complete_names(const std::string& interfaces) {
  const auto all = topology::list_interfaces();
  if (interfaces.empty() || !all) return interfaces;
  const auto chosen = topology::choose_interfaces(interfaces, *all);
  if (!chosen) return interfaces;
  std::string names;
  for (const topology::Interface& one : *chosen) names += (names.empty() ? "" : ",") + one.name;
  return names;
}

}  // namespace gradwire::cli
