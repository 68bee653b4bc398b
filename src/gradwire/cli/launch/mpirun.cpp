#include "gradwire/cli/launch/mpirun.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include "gradwire/base/cpu.h"
#include "gradwire/base/refuse.h"
#include "gradwire/cli/launch/captured.h"
#include "gradwire/cli/launch/cards.h"
#include "gradwire/cli/launch/process.h"

namespace gradwire::cli {
namespace {

using Words = std::vector<std::string>;

/// Runs "$@" as a rank: with the variables of every launcher of gradwire, and a line that names it
/// if it fails, as mpirun may name the process only.
constexpr const char* kRankScript = R"(
# mpirun got the cards as they were given, and passes them on. Open MPI takes complete names only.
if [ -n "${cards-}" ] && [ "${OMPI_MCA_btl_tcp_if_include-}" = "$GRADWIRE_INTERFACE" ]; then
  export OMPI_MCA_btl_tcp_if_include="$cards"
fi
RANK=${OMPI_COMM_WORLD_RANK:-$PMI_RANK}
WORLD_SIZE=${OMPI_COMM_WORLD_SIZE:-$PMI_SIZE}
LOCAL_RANK=${OMPI_COMM_WORLD_LOCAL_RANK:-$MPI_LOCALRANKID}
LOCAL_WORLD_SIZE=${OMPI_COMM_WORLD_LOCAL_SIZE:-$MPI_LOCALNRANKS}
export RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE
unset GROUP_RANK GROUP_WORLD_SIZE GRADWIRE_REPORT
if [ -n "${GRADWIRE_DIVIDE_CORES-}" ]; then
  unset OMP_NUM_THREADS GRADWIRE_DIVIDE_CORES
  cores=$(nproc)
  export OMP_NUM_THREADS=$((cores > LOCAL_WORLD_SIZE ? cores / LOCAL_WORLD_SIZE : 1))
fi
# MPI may kill this shell alone.
if setpriv --pdeathsig KILL true 2>/dev/null; then
  set -- setpriv --pdeathsig KILL "$@"
fi
"$@" &
program=$!
# The program may end in order, and save a checkpoint.
trap 'kill -TERM $program' TERM
wait $program
status=$?
while kill -0 $program 2>/dev/null; do
  wait $program
  status=$?
done
[ $status -eq 0 ] || echo "gradwire: rank $RANK on $(uname -n) failed: exit status $status" >&2
exit $status
)";

void add_setting(Words& words, const std::string& name, const std::string& value) {
  words.insert(words.end(), {"--mca", name, value});
}

/// Returns true if the user has set one of mpirun's settings.
bool is_set(const LaunchOptions& launch, const std::string& name) {
  return std::ranges::count(launch.mpirun, name) > 0 ||
         own_variables().contains("OMPI_MCA_" + name);
}

/// "a:2,b:2", so that ranks are placed on the same hosts as by gradwire's launcher.
std::string mpi_hosts(const LaunchOptions& launch) {
  std::map<std::size_t, int> counts;
  for (const Placement& place : place_ranks(launch.hosts, launch.ranks)) ++counts[place.host];
  Words entries;
  for (const auto& [host, count] : counts)
    entries.push_back(fmt::format("{}:{}", launch.hosts[host].name, count));
  return fmt::format("{}", fmt::join(entries, ","));
}

std::size_t ranks_of(const LaunchOptions& launch) {
  if (launch.hosts.empty()) return static_cast<std::size_t>(launch.ranks.value_or(usable_cores()));
  return place_ranks(launch.hosts, launch.ranks).size();
}

Words open_mpi_places(const LaunchOptions& launch) {
  Words words;
  if (::geteuid() == 0) words.emplace_back("--allow-run-as-root");
  words.insert(words.end(), {"-n", fmt::to_string(ranks_of(launch))});
  if (launch.hosts.empty()) {
    words.emplace_back("--oversubscribe");
    // With more ranks than cores, a spinning rank takes the core of the rank that it waits for.
    if (ranks_of(launch) > static_cast<std::size_t>(usable_cores()))
      add_setting(words, "mpi_yield_when_idle", "1");
  } else {
    words.insert(words.end(), {"--host", mpi_hosts(launch), "--bind-to", "none"});
    add_setting(words, "plm_rsh_agent", fmt::format("{}", fmt::join(launch.rsh, " ")));
  }
  const std::string cards = interfaces_of(launch);
  for (const auto& [what, value] : {std::pair("btl_tcp_if_include", cards),
                                    std::pair("oob_tcp_if_include", complete_names(cards))})
    if (!value.empty() && !is_set(launch, what)) add_setting(words, what, value);
  return words;
}

Words hydra_places(const LaunchOptions& launch) {
  Words words{"-n", fmt::to_string(ranks_of(launch))};
  if (!launch.hosts.empty()) {
    if (launch.rsh.size() > 1) {
      throw Exception(ErrorKind::unsupported,
                      fmt::format("--rsh \"{}\": MPICH's mpirun takes a remote shell without "
                                  "arguments; put the command into a script",
                                  fmt::join(launch.rsh, " ")));
    }
    words.insert(words.end(), {"-hosts", mpi_hosts(launch), "-launcher", "ssh", "-launcher-exec",
                               launch.rsh.front()});
  }
  const std::string card = complete_names(interfaces_of(launch));
  if (card.find(',') != std::string::npos) {
    throw Exception(ErrorKind::unsupported,
                    fmt::format("--interface {}: MPICH uses one interface; name one", card));
  }
  if (!card.empty()) words.insert(words.end(), {"-iface", card});
  return words;
}

/// Passes variables on to ranks on all hosts, with their values in mpirun's own environment.
void add_exports(Words& words, MpirunKind kind, const std::set<std::string>& names) {
  if (kind == MpirunKind::hydra) {
    words.insert(words.end(), {"-genvlist", fmt::format("{}", fmt::join(names, ","))});
    return;
  }
  for (const std::string& name : names) words.insert(words.end(), {"-x", name});
}

void add_output(Words& words, MpirunKind kind, RankOutput output) {
  if (output != RankOutput::prefixed) return;
  words.emplace_back(kind == MpirunKind::hydra ? "-prepend-rank" : "--tag-output");
}

bool is_of_a_rank(const std::string& name) {
  static const std::set<std::string, std::less<>> kNames{
      "RANK",       "WORLD_SIZE",       "LOCAL_RANK", "LOCAL_WORLD_SIZE",
      "GROUP_RANK", "GROUP_WORLD_SIZE", kProcessMark};
  return kNames.contains(name);
}

/// Without what launch() would do for ranks of its own.
void check_options(const LaunchOptions& options) {
  const auto unsupported = [](const char* option, const char* remedy) {
    throw Exception(ErrorKind::unsupported,
                    fmt::format("{} with --engine mpi: {}", option, remedy));
  };
  if (options.servers > 0) unsupported("--servers", "parameter servers need gradwire's own engine");
  if (options.port) unsupported("--port", "MPI listens on ports of its own choice");
  for (const auto& [name, value] : options.variables)
    if (name == "GRADWIRE_ENCRYPTION" && value == "on")
      unsupported("--encrypt", "MPI neither encrypts nor authenticates");
}

}  // namespace

Result<MpirunKind> kind_of_mpirun(const std::string& mpirun) {
  const auto asked = run_captured({mpirun, "--version"}, std::chrono::minutes(1));
  if (!asked) {
    return failure(ErrorKind::unsupported,
                   fmt::format("{}: install openmpi-bin or mpich, or name MPI's mpirun with "
                               "--mpirun",
                               asked.error().message));
  }
  const std::string text = asked->out + asked->err;
  const auto says = [&](const char* word) { return text.find(word) != std::string::npos; };
  if (says("Open MPI") || says("OpenRTE")) return MpirunKind::open_mpi;
  if (says("HYDRA") || says("Intel(R) MPI")) return MpirunKind::hydra;
  return failure(ErrorKind::unsupported,
                 fmt::format("{} is the mpirun neither of Open MPI nor of MPICH; start the ranks "
                             "with it, and GRADWIRE_ENGINE=mpi (docs/engines.md)",
                             mpirun));
}

std::vector<std::string> mpirun_places(MpirunKind kind, const LaunchOptions& options) {
  return kind == MpirunKind::hydra ? hydra_places(options) : open_mpi_places(options);
}

LaunchOptions through_mpirun(const LaunchOptions& options) {
  check_options(options);
  const MpirunKind kind = value_or_throw(kind_of_mpirun(options.mpirun.front()));
  LaunchOptions made{.ranks = 1,
                     .output = RankOutput::unchanged,
                     .grace = options.grace,
                     .name = options.name,
                     .process = "mpirun"};
  const JobPlan plan = plan_job(options);
  std::set<std::string> exported{"GRADWIRE_ENGINE", kProcessMark};
  for (const auto& [name, value] : plan.ranks.front().variables) {
    if (is_of_a_rank(name)) continue;
    made.variables.emplace_back(name, value);
    exported.insert(name);
  }
  if (!own_variables().contains("OMP_NUM_THREADS") && !exported.contains("OMP_NUM_THREADS")) {
    made.variables.emplace_back("GRADWIRE_DIVIDE_CORES", "1");
    exported.insert("GRADWIRE_DIVIDE_CORES");
  }
  for (const auto& [name, value] : own_variables())
    if (name.starts_with("GRADWIRE_") || is_of_all_ranks(name)) exported.insert(name);
  made.program = options.mpirun;
  const auto append = [&](const Words& words) {
    made.program.insert(made.program.end(), words.begin(), words.end());
  };
  append(mpirun_places(kind, options));
  // A rank has more threads than one: the progress thread, and those of libtorch.
  if (kind == MpirunKind::open_mpi && options.hosts.empty()) append({"--bind-to", "none"});
  if (kind == MpirunKind::open_mpi) {
    // Its SIGTERM comes after this time, and its SIGKILL after twice the time.
    const auto grace = std::chrono::floor<std::chrono::seconds>(options.grace).count();
    add_setting(made.program, "odls_base_sigkill_timeout",
                fmt::to_string(std::max<std::int64_t>(1, (grace - 1) / 2)));
  }
  add_exports(made.program, kind, exported);
  add_output(made.program, kind, options.output);
  append({"sh", "-c", std::string(kCardScript) + kRankScript, "sh"});
  append(options.program);
  return made;
}

}  // namespace gradwire::cli
