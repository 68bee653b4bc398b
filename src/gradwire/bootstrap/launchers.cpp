#include "gradwire/bootstrap/launchers.h"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>

#include "gradwire/base/refuse.h"

namespace gradwire::bootstrap {
namespace {

/// Names of the four variables that every launcher sets.
struct Names {
  std::string_view rank, world_size, local_rank, local_world_size;
};

constexpr Names kTorchrun{"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"};
constexpr Names kOpenMpi{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                         "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"};
constexpr Names kHydra{"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"};

std::string remedy_for(std::string_view missing, std::string_view present) {
  return fmt::format(
      "{} is set, so {} must be too; start the ranks with gradwire run, torchrun, mpirun or srun, "
      "which set both, or unset {} to run a single process",
      present, missing, present);
}

/// Reads rank and world size, and the local ones as far as they are set. `all_local`: other
/// evidence shows that all ranks are on this host.
LauncherInfo read(const EnvironmentVariables& variables, const Names& names, bool all_local) {
  LauncherInfo result;
  result.world_size = variables.required_number(names.world_size, 1, kMaxRanks, {},
                                                remedy_for(names.world_size, names.rank));
  const int size = result.world_size;
  const std::string as_size = fmt::format("as {}={}", names.world_size, size);
  result.rank = variables.required_number(names.rank, 0, size - 1, as_size,
                                          remedy_for(names.rank, names.world_size));
  const std::optional<int> local_size = variables.number(names.local_world_size, 1, size, as_size);
  result.local_rank = all_local ? result.rank : 0;
  if (local_size || variables.has(names.local_rank)) {
    result.local_rank = variables.required_number(
        names.local_rank, 0, local_size.value_or(size) - 1,
        local_size ? fmt::format("as {}={}", names.local_world_size, *local_size) : as_size,
        remedy_for(names.local_rank, names.local_world_size));
  }
  result.local_world_size = local_size.value_or(all_local ? size : result.local_rank + 1);
  return result;
}

/// `gradwire run`, torchrun, and ranks started by hand.
std::optional<LauncherInfo> from_torchrun(const EnvironmentVariables& variables) {
  if (!variables.has(kTorchrun.rank) && !variables.has(kTorchrun.world_size)) return std::nullopt;
  const bool loopback = is_loopback(variables.text("MASTER_ADDR").value_or(""));
  LauncherInfo result = read(variables, kTorchrun, loopback);
  result.launcher = variables.has("TORCHELASTIC_RUN_ID") ? "torchrun" : "gradwire";
  result.launcher_store = variables.text("TORCHELASTIC_USE_AGENT_STORE").value_or("") == "True" &&
                          result.world_size > 1;
  result.how_to_set = "{}=... in the environment of every rank";
  return result;
}

std::optional<LauncherInfo> from_open_mpi(const EnvironmentVariables& variables) {
  if (!variables.has(kOpenMpi.rank) && !variables.has(kOpenMpi.world_size)) return std::nullopt;
  LauncherInfo result = read(variables, kOpenMpi, false);
  result.launcher = "mpirun";
  result.how_to_set = "mpirun -x {}=...";
  const auto job = variables.text("PMIX_NAMESPACE");
  result.job_id = job ? *job : variables.text("OMPI_MCA_ess_base_jobid").value_or("");
  return result;
}

/// MPICH and its derivatives, which do not tell ranks the name of their job.
std::optional<LauncherInfo> from_hydra(const EnvironmentVariables& variables) {
  if (!variables.has(kHydra.rank) && !variables.has(kHydra.world_size)) return std::nullopt;
  LauncherInfo result = read(variables, kHydra, false);
  result.launcher = "mpirun";
  result.how_to_set = "mpirun -genv {} ...";
  result.job_id = variables.text("PMI_JOBID").value_or("");
  return result;
}

/// Returns true if srun started this process. Batch scripts and the shell of salloc have most of
/// Slurm's variables too, but are not ranks.
bool is_slurm_step(const EnvironmentVariables& variables) {
  if (!variables.has("SLURM_PROCID")) return false;
  return variables.has("SLURM_STEP_ID") || variables.text("ENVIRONMENT") != "BATCH";
}

/// SLURM_NTASKS may be that of the allocation; the step's variable takes precedence.
std::string_view slurm_size_name(const EnvironmentVariables& variables) {
  return variables.has("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS";
}

/// Returns the variable of the step, or else that of the job.
std::string slurm_text(const EnvironmentVariables& variables, std::string_view of_step,
                       std::string_view of_job) {
  const auto step = variables.text(of_step);
  return step ? *step : variables.text(of_job).value_or("");
}

bool one_slurm_node(const EnvironmentVariables& variables, const std::string& hosts) {
  const auto nodes = variables.number("SLURM_STEP_NUM_NODES", 1, kMaxRanks);
  if (nodes) return *nodes == 1;
  return !hosts.empty() && hosts.find_first_of(",[") == std::string::npos;
}

std::optional<LauncherInfo> from_slurm(const EnvironmentVariables& variables) {
  if (!is_slurm_step(variables) || !variables.has(slurm_size_name(variables))) return std::nullopt;
  const Names names{"SLURM_PROCID", slurm_size_name(variables), "SLURM_LOCALID", ""};
  const std::string hosts = slurm_text(variables, "SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST");
  LauncherInfo result = read(variables, names, one_slurm_node(variables, hosts));
  result.launcher = "slurm";
  result.how_to_set = "srun --export=ALL,{}=...";
  const auto tasks = slurm_tasks_on_node(
      slurm_text(variables, "SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"),
      variables.number("SLURM_NODEID", 0, kMaxRanks).value_or(0));
  if (tasks && *tasks > result.local_rank && *tasks <= result.world_size) {
    result.local_world_size = *tasks;
  }
  if (!hosts.empty()) result.master_address = first_slurm_host(hosts);
  result.job_id = variables.text("SLURM_JOB_ID").value_or("");
  if (const auto step = variables.text("SLURM_STEP_ID")) result.job_id += "." + *step;
  return result;
}

bool same_place(const LauncherInfo& a, const LauncherInfo& b) {
  return a.rank == b.rank && a.world_size == b.world_size;
}

}  // namespace

std::optional<LauncherInfo> find_launcher(const EnvironmentVariables& variables) {
  if (auto launched = from_torchrun(variables)) return launched;
  if (auto launched = from_open_mpi(variables)) return launched;
  const auto hydra = from_hydra(variables);
  // srun may provide PMI to its ranks, and has more information about them. But mpirun inside an
  // allocation starts its helpers by srun, and their SLURM_* variables do not describe the ranks.
  const auto slurm = from_slurm(variables);
  if (hydra && !(slurm && same_place(*hydra, *slurm))) return hydra;
  return slurm;
}

bool is_loopback(std::string_view address) {
  return address == "localhost" || address.starts_with("127.") || address == "::1" ||
         address == "ip6-localhost";
}

std::uint16_t port_from_job_id(std::string_view job_id) {
  // FNV-1a (Fowler, Noll, Vo), because std::hash may differ between hosts.
  std::uint64_t hash = 0xCBF29CE484222325u;
  for (const char c : job_id) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
  }
  return static_cast<std::uint16_t>(20000 + hash % 10000);
}

namespace {

std::optional<int> to_number(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

/// Removes and returns the prefix of `rest` before the first of `separators`.
std::string_view take_until(std::string_view& rest, std::string_view separators) {
  const std::size_t at = rest.find_first_of(separators);
  const std::string_view head = rest.substr(0, at);
  rest.remove_prefix(head.size());
  return head;
}

/// Returns the first name of a host list; empty or nullopt if it is malformed. Brackets may appear
/// anywhere in the name and repeatedly ("rack[0-1]node[1-2]"); the first host takes the first
/// number of each, with its leading zeros.
std::optional<std::string> expand_first(std::string_view rest) {
  std::string name;
  for (;;) {
    name += take_until(rest, "[,]");
    if (rest.empty() || rest.front() == ',') return name;
    if (rest.front() == ']') return std::nullopt;
    rest.remove_prefix(1);
    std::string_view range = take_until(rest, "]");
    const std::string_view first = take_until(range, ",-");
    if (rest.empty() || !to_number(first)) return std::nullopt;
    name += first;
    rest.remove_prefix(1);
  }
}

/// "2(x3)": three nodes with two tasks each.
struct NodeRun {
  int tasks = 0;
  int nodes = 0;
};

std::optional<NodeRun> parse_run(std::string_view text) {
  const std::size_t open = text.find("(x");
  const std::optional<int> tasks = to_number(text.substr(0, open));
  if (!tasks) return std::nullopt;
  if (open == std::string_view::npos) return NodeRun{*tasks, 1};
  if (text.back() != ')') return std::nullopt;
  const std::optional<int> nodes = to_number(text.substr(open + 2, text.size() - open - 3));
  if (!nodes) return std::nullopt;
  return NodeRun{*tasks, *nodes};
}

}  // namespace

std::string first_slurm_host(std::string_view hosts) {
  const std::string name = expand_first(hosts).value_or("");
  if (name.empty()) {
    refuse(
        "\"{}\" is not a Slurm host list such as n[01-03,7],m2: set "
        "MASTER_ADDR to the host of rank 0",
        hosts);
  }
  return name;
}

std::optional<int> slurm_tasks_on_node(std::string_view tasks_per_node, int node) {
  std::string_view rest = tasks_per_node;
  while (!rest.empty()) {
    const std::optional<NodeRun> run = parse_run(take_until(rest, ","));
    if (!run) return std::nullopt;
    if (node < run->nodes) return run->tasks;
    node -= run->nodes;
    if (!rest.empty()) rest.remove_prefix(1);
  }
  return std::nullopt;
}

}  // namespace gradwire::bootstrap
