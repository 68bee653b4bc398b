#include "gradwire/cli/bench/peers.h"

#include <iterator>
#include <map>
#include <sstream>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include "gradwire/base/cores.h"
#include "gradwire/cli/bench/bench_report.h"
#include "gradwire/cli/bench/captured.h"
#include "gradwire/cli/launch/placement.h"

namespace gradwire {
namespace {

void add(Words& words, const char* option, const std::string& value) {
  if (value.empty()) return;
  words.emplace_back(option);
  words.push_back(value);
}

void add(Words& words, const char* option, int value) {
  if (value > 0) add(words, option, fmt::to_string(value));
}

/// Appends the arguments of the peers' programs: COLLECTIVE ITERATIONS SECONDS WARMUP BYTES...
void add_measurement(Words& words, const Cases& cases) {
  const BenchCase& first = cases.front();
  words.insert(words.end(),
               {std::string(name_of(first.collective)), fmt::to_string(first.iterations),
                fmt::to_string(first.seconds), fmt::to_string(first.warmup)});
  for (const BenchCase& what : cases) words.push_back(fmt::to_string(what.bytes));
}

Words words_in(const std::string& text) {
  std::istringstream stream(text);
  return {std::istream_iterator<std::string>(stream), {}};
}

/// Open MPI's name of a collective in MCA parameters, and the names of its algorithms.
struct Tuned {
  const char* name;
  Words algorithms;
};

const Tuned* tuned(Collective collective) {
  static const std::map<Collective, Tuned> known{
      {Collective::all_reduce,
       {"allreduce",
        {"basic_linear", "nonoverlapping", "recursive_doubling", "ring", "segmented_ring",
         "rabenseifner"}}},
      {Collective::all_gather,
       {"allgather", {"linear", "bruck", "recursive_doubling", "ring", "neighbor", "two_proc"}}},
      {Collective::reduce_scatter,
       {"reduce_scatter_block",
        {"basic_linear", "recursive_doubling", "recursive_halving", "butterfly"}}},
      {Collective::broadcast,
       {"bcast",
        {"basic_linear", "chain", "pipeline", "split_binary_tree", "binary_tree", "binomial",
         "knomial", "scatter_allgather", "scatter_allgather_ring"}}},
      {Collective::reduce,
       {"reduce",
        {"linear", "chain", "pipeline", "binary", "binomial", "in-order_binary", "rabenseifner"}}},
      {Collective::gather, {"gather", {"basic_linear", "binomial", "linear_sync"}}},
      {Collective::scatter, {"scatter", {"basic_linear", "binomial", "linear_nb"}}},
      {Collective::all_to_all,
       {"alltoall", {"linear", "pairwise", "modified_bruck", "linear_sync", "two_proc"}}},
      {Collective::barrier,
       {"barrier", {"linear", "double_ring", "recursive_doubling", "bruck", "two_proc", "tree"}}},
  };
  const auto found = known.find(collective);
  return found == known.end() ? nullptr : &found->second;
}

void add_setting(Words& words, const std::string& name, const std::string& value) {
  words.insert(words.end(), {"--mca", name, value});
}

/// Returns "a:2,b:2", so that ranks are placed on the same hosts as gradwire's.
std::string mpi_hosts(const LaunchOptions& launch) {
  std::map<std::size_t, int> counts;
  for (const Placement& place : place_ranks(launch.hosts, launch.ranks)) ++counts[place.host];
  Words entries;
  for (const auto& [host, count] : counts)
    entries.push_back(fmt::format("{}:{}", launch.hosts[host].name, count));
  return fmt::format("{}", fmt::join(entries, ","));
}

/// Appends mpirun's options for hosts and network.
void add_mpi_places(Words& words, const BenchOptions& options) {
  const LaunchOptions launch = launch_options_of(options.launch);
  add(words, "-n", ranks_to_start(options.launch));
  if (launch.hosts.empty()) {
    words.emplace_back("--oversubscribe");
    // With more ranks than cores, a spinning rank takes the core of the rank that it waits for.
    if (ranks_to_start(options.launch) > usable_cores())
      add_setting(words, "mpi_yield_when_idle", "1");
    return;
  }
  add(words, "--host", mpi_hosts(launch));
  add_setting(words, "plm_rsh_agent", fmt::format("{}", fmt::join(launch.rsh, " ")));
  words.insert(words.end(), {"--bind-to", "none"});
  if (launch.interface.empty()) return;
  for (const char* what : {"btl_tcp_if_include", "oob_tcp_if_include"})
    add_setting(words, what, launch.interface);
}

}  // namespace

void add_launch(Words& words, const LaunchArguments& launch) {
  add(words, "--ranks", launch.ranks);
  add(words, "--hosts", launch.hosts);
  add(words, "--hostfile", launch.hostfile);
  add(words, "--rsh", launch.rsh);
  add(words, "--master-addr", launch.master_address);
  add(words, "--master-port", launch.master_port);
  add(words, "--port", launch.port);
  add(words, "--interface", launch.interface);
  if (launch.encrypt) words.push_back("--encrypt");
  add(words, "--secret-file", launch.secret_file);
  for (const std::string& variable : launch.variables) add(words, "--env", variable);
}

Result<Rows> run_peer(const Words& command, const Cases& cases, Duration limit) {
  const auto ended = run_captured(command, limit);
  if (!ended) return tl::unexpected(ended.error());
  if (ended->status != 0) {
    return failure(ErrorKind::system,
                   fmt::format("{} failed with exit status {}:\n{}{}", command.front(),
                               ended->status, ended->out, ended->err));
  }
  return parse_rows(ended->out, cases);
}

Words gradwire_command(const BenchOptions& options, const Cases& cases,
                       const std::string& program) {
  Words sizes;
  for (const BenchCase& what : cases) sizes.push_back(fmt::to_string(what.bytes));
  Words words{program, "bench", options.collective, "--json", "-"};
  add(words, "--sizes", fmt::format("{}", fmt::join(sizes, ",")));
  add(words, "--algorithm", fmt::format("{}", fmt::join(options.algorithms, ",")));
  add(words, "--iterations", options.iterations);
  add(words, "--seconds", fmt::to_string(options.seconds));
  add(words, "--warmup", fmt::to_string(options.warmup));
  add_launch(words, options.launch);
  return words;
}

std::string gloo_interface(const LaunchArguments& launch) {
  return launch.hosts.empty() && launch.hostfile.empty() ? "lo" : launch.interface;
}

Words gloo_command(const BenchOptions& options, const Cases& cases, const std::string& program,
                   const std::string& script) {
  Words words{program, "run", "--no-prefix"};
  add_launch(words, options.launch);
  const std::string interface = gloo_interface(options.launch);
  if (!interface.empty()) add(words, "--env", "GLOO_SOCKET_IFNAME=" + interface);
  words.insert(words.end(), {"--", options.python, script});
  add_measurement(words, cases);
  return words;
}

Words mpi_command(const BenchOptions& options, const Cases& cases, const std::string& program,
                  const std::string& benchmark, const std::string& algorithm) {
  Words words{program, "run", "--ranks", "1", "--no-prefix", "--"};
  const Words mpirun = words_in(options.mpirun);
  words.insert(words.end(), mpirun.begin(), mpirun.end());
  if (::geteuid() == 0) words.emplace_back("--allow-run-as-root");
  add_mpi_places(words, options);
  const Tuned* settings = tuned(cases.front().collective);
  if (settings != nullptr && algorithm != "default") {
    add_setting(words, "coll_tuned_use_dynamic_rules", "1");
    add_setting(words, fmt::format("coll_tuned_{}_algorithm", settings->name), algorithm);
  }
  words.push_back(benchmark);
  add_measurement(words, cases);
  return words;
}

Words mpi_algorithms(Collective collective) {
  Words algorithms{"default"};
  const Tuned* settings = tuned(collective);
  if (settings != nullptr)
    algorithms.insert(algorithms.end(), settings->algorithms.begin(), settings->algorithms.end());
  return algorithms;
}

}  // namespace gradwire
