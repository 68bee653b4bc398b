#include "gradwire/cli/bench/peers.h"

#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gradwire/base/bytes.h"
#include "gradwire/base/clock.h"
#include "gradwire/base/cpu.h"
#include "gradwire/base/crc32c.h"
#include "gradwire/base/suggest.h"
#include "gradwire/base/units.h"
#include "gradwire/cli/bench/bench_report.h"
#include "gradwire/cli/command_line.h"
#include "gradwire/cli/launch/cards.h"
#include "gradwire/cli/launch/hosts.h"
#include "gradwire/cli/launch/launch.h"
#include "gradwire/cli/launch/mpirun.h"
#include "gradwire/cli/launch/process.h"

namespace gradwire::cli {
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

/// Open MPI's name of a collective in MCA parameters, and the names of its algorithms.
struct Tuned {
  const char* name;
  Words algorithms;
};

const Tuned* tuned(schedule::Collective collective) {
  static const std::map<schedule::Collective, Tuned> known{
      {schedule::Collective::all_reduce,
       {"allreduce",
        {"basic_linear", "nonoverlapping", "recursive_doubling", "ring", "segmented_ring",
         "rabenseifner"}}},
      {schedule::Collective::all_gather,
       {"allgather", {"linear", "bruck", "recursive_doubling", "ring", "neighbor", "two_proc"}}},
      {schedule::Collective::reduce_scatter,
       {"reduce_scatter_block",
        {"basic_linear", "recursive_doubling", "recursive_halving", "butterfly"}}},
      {schedule::Collective::broadcast,
       {"bcast",
        {"basic_linear", "chain", "pipeline", "split_binary_tree", "binary_tree", "binomial",
         "knomial", "scatter_allgather", "scatter_allgather_ring"}}},
      {schedule::Collective::reduce,
       {"reduce",
        {"linear", "chain", "pipeline", "binary", "binomial", "in-order_binary", "rabenseifner"}}},
      {schedule::Collective::gather, {"gather", {"basic_linear", "binomial", "linear_sync"}}},
      {schedule::Collective::scatter, {"scatter", {"basic_linear", "binomial", "linear_nb"}}},
      {schedule::Collective::all_to_all,
       {"alltoall", {"linear", "pairwise", "modified_bruck", "linear_sync", "two_proc"}}},
      {schedule::Collective::barrier,
       {"barrier", {"linear", "double_ring", "recursive_doubling", "bruck", "two_proc", "tree"}}},
  };
  const auto found = known.find(collective);
  return found == known.end() ? nullptr : &found->second;
}

void add_setting(Words& words, const std::string& name, const std::string& value) {
  words.insert(words.end(), {"--mca", name, value});
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

namespace {

const TorchPeer& peer_named(const std::string& system, std::span<const TorchPeer> known) {
  const auto found = std::ranges::find(known, system, &TorchPeer::system);
  if (found != known.end()) return *found;
  std::vector<std::string_view> names;
  for (const TorchPeer& peer : known) names.push_back(peer.system);
  throw UsageError(unknown_name("system to compare with", system, names));
}

}  // namespace

std::string why_missing(const std::string& python, std::string_view backend, int gpus) {
  static const std::map<std::string_view, std::pair<std::string, std::string_view>> known{
      {"gloo", {"import torch.distributed as d; assert d.is_gloo_available()", "Gloo"}},
      {"nccl", {"import torch.distributed as d; assert d.is_nccl_available()", "NCCL"}},
      {"gradwire", {"import gradwire", "the package gradwire"}}};
  const auto& [check, what] = known.at(backend);
  const auto tried =
      run_captured({python, "-c", check + "\nimport torch; print(torch.cuda.device_count())"},
                   std::chrono::minutes(2));
  if (!tried) return tried.error().message;
  if (tried->status != 0) {
    return fmt::format("{} has no PyTorch with {}; name a Python that has it with --python", python,
                       what);
  }
  int found = 0;
  std::from_chars(tried->out.data(), tried->out.data() + tried->out.size(), found);
  if (found >= gpus) return "";
  return fmt::format("each rank needs a GPU of its own, {} here, and {} finds {}", gpus, python,
                     found);
}

std::vector<TorchPeer> installed_peers(std::string_view command,
                                       const std::vector<std::string>& names,
                                       std::span<const TorchPeer> known,
                                       const std::string& python) {
  std::vector<TorchPeer> wanted;
  for (const std::string& system : names) wanted.push_back(peer_named(system, known));
  std::erase_if(wanted, [&](const TorchPeer& peer) {
    const std::string why = why_missing(python, peer.backend, 0);
    if (!why.empty()) fmt::print(stderr, "{}: {} is skipped: {}\n", command, peer.system, why);
    return !why.empty();
  });
  return wanted;
}

std::string output_of(const std::string& system, const Words& command) {
  Captured ended = value_or_throw(run_captured(command, std::chrono::hours(1)));
  if (ended.status == 0) return std::move(ended.out);
  throw Exception(ErrorKind::system, fmt::format("{} failed with exit status {}:\n{}{}", system,
                                                 ended.status, ended.out, ended.err));
}

Words python_command(const LaunchArguments& launch, const std::string& python,
                     const std::string& program) {
  Words words{program, "run", "--engine", "own", "--no-prefix"};
  add_launch(words, launch);
  // Gloo would use the address of the host's name.
  if (launch.hosts.empty() && launch.hostfile.empty())
    words.insert(words.end(), {"--env", "GLOO_SOCKET_IFNAME=lo"});
  words.insert(words.end(), {"--", python});
  return words;
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

Words backend_command(const BenchOptions& options, const Cases& cases, std::string_view backend,
                      const std::string& program, const std::string& script) {
  Words words = python_command(options.launch, options.python, program);
  words.insert(words.end(), {script, std::string(backend)});
  add_measurement(words, cases);
  return words;
}

Words mpi_command(const BenchOptions& options, const Cases& cases, const std::string& program,
                  const std::string& benchmark, const std::string& algorithm) {
  Words words{program, "run", "--engine", "own", "--ranks", "1", "--no-prefix", "--"};
  LaunchOptions launch = launch_options_of(options.launch);
  launch.interface = complete_names(interfaces_of(launch));
  words.insert(words.end(), launch.mpirun.begin(), launch.mpirun.end());
  const Words places = mpirun_places(MpirunKind::open_mpi, launch);
  words.insert(words.end(), places.begin(), places.end());
  const Tuned* settings = tuned(cases.front().collective);
  if (settings != nullptr && algorithm != "default") {
    add_setting(words, "coll_tuned_use_dynamic_rules", "1");
    add_setting(words, fmt::format("coll_tuned_{}_algorithm", settings->name), algorithm);
  }
  words.push_back(benchmark);
  add_measurement(words, cases);
  return words;
}

Words mpi_algorithms(schedule::Collective collective) {
  Words algorithms{"default"};
  const Tuned* settings = tuned(collective);
  if (settings != nullptr)
    algorithms.insert(algorithms.end(), settings->algorithms.begin(), settings->algorithms.end());
  return algorithms;
}

namespace {

namespace fs = std::filesystem;

constexpr Duration kLimit = std::chrono::minutes(2);

fs::path cache_folder(const bootstrap::Environment& environment) {
  const fs::path cache = environment("XDG_CACHE_HOME").value_or("");
  if (!cache.empty()) return cache / "gradwire";
  const fs::path home = environment("HOME").value_or("");
  return (home.empty() ? fs::temp_directory_path() : home / ".cache") / "gradwire";
}

std::string content_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// Compiles to a temporary name and renames it, as another process may compile the program at the
/// same time.
Status compile(const std::string& source, const fs::path& program) {
  const std::string unfinished = fmt::format("{}.{}", program.string(), ::getpid());
  const auto compiled = run_captured({"mpicc", "-O2", source, "-o", unfinished}, kLimit);
  if (!compiled) {
    return failure(ErrorKind::unsupported,
                   compiled.error().message + " (Debian: apt-get install libopenmpi-dev)");
  }
  if (compiled->status != 0) {
    return failure(ErrorKind::system, fmt::format("mpicc {} failed:\n{}", source, compiled->err));
  }
  std::error_code error;
  fs::rename(unfinished, program, error);
  if (error) {
    return failure(ErrorKind::system,
                   fmt::format("cannot write {}: {}", program.string(), error.message()));
  }
  return {};
}

Status check_mpirun(const std::string& mpirun) {
  GRADWIRE_ASSIGN_OR_RETURN(const MpirunKind kind,
                            kind_of_mpirun(mpirun.substr(0, mpirun.find(' '))));
  if (kind == MpirunKind::open_mpi) return {};
  return failure(ErrorKind::unsupported, fmt::format("{} is not Open MPI's mpirun", mpirun));
}

}  // namespace

std::string bench_file(const std::string& name) {
  const fs::path folder = fs::path(own_executable()).parent_path().parent_path();
  const fs::path file = folder / "share" / "gradwire" / "bench" / name;
  if (!fs::exists(file))
    throw Exception(ErrorKind::system,
                    fmt::format("{} does not exist: is the installation complete?", file.string()));
  return file;
}

Result<std::string> build_mpi_program(const std::string& mpirun,
                                      const bootstrap::Environment& environment) {
  if (Status usable = check_mpirun(mpirun); !usable) return tl::unexpected(usable.error());
  const std::string source = bench_file("mpi_bench.c");
  const std::string text = content_of(source);
  const std::uint32_t mark =
      crc32c(ConstBytes(reinterpret_cast<const std::byte*>(text.data()), text.size()));
  const fs::path program = cache_folder(environment) / fmt::format("mpi_bench-{:08x}", mark);
  if (fs::exists(program)) return program.string();
  std::error_code error;
  fs::create_directories(program.parent_path(), error);
  if (error) {
    return failure(ErrorKind::system, fmt::format("cannot create {}: {}",
                                                  program.parent_path().string(), error.message()));
  }
  if (Status compiled = compile(source, program); !compiled)
    return tl::unexpected(compiled.error());
  return program.string();
}

namespace {

/// Up to this size Open MPI's algorithms are tried for kTrialSeconds, above it for
/// kTrialIterations.
constexpr std::size_t kQuickBytes = 4 << 20;
constexpr double kTrialSeconds = 0.1;
constexpr int kTrialIterations = 2;
constexpr Duration kTrialLimit = std::chrono::minutes(5);

}  // namespace

Rows OpenMpi::measure(const Cases& cases) {
  if (best_.empty()) find_best(cases);
  std::map<std::string, std::vector<std::size_t>> by_algorithm;
  for (std::size_t i = 0; i < cases.size(); ++i) by_algorithm[best_[i]].push_back(i);
  Rows rows(cases.size());
  for (const auto& [algorithm, indices] : by_algorithm) {
    Cases some;
    for (std::size_t i : indices) some.push_back(cases[i]);
    const Rows measured = value_or_throw(run_peer(command(some, algorithm), some));
    for (std::size_t k = 0; k < indices.size(); ++k) {
      rows[indices[k]] = measured[k];
      rows[indices[k]].algorithm = algorithm;
    }
  }
  return rows;
}

Words OpenMpi::command(const Cases& cases, const std::string& algorithm) const {
  return mpi_command(options_, cases, own_executable(), benchmark_, algorithm);
}

void OpenMpi::find_best(const Cases& cases) {
  best_.assign(cases.size(), "default");
  std::vector<double> fastest(cases.size(), 0);
  for (const std::string& algorithm : mpi_algorithms(cases.front().collective)) {
    for (const bool quick : {true, false}) try_out(cases, quick, algorithm, fastest);
  }
}

/// An algorithm other than "default" may fail with this number of ranks; it is then skipped.
void OpenMpi::try_out(const Cases& cases, bool quick, const std::string& algorithm,
                      std::vector<double>& fastest) {
  Cases some;
  std::vector<std::size_t> indices;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    if ((cases[i].bytes <= kQuickBytes) != quick) continue;
    some.push_back(cases[i]);
    some.back().seconds = kTrialSeconds;
    some.back().iterations = quick ? 0 : kTrialIterations;
    indices.push_back(i);
  }
  if (some.empty()) return;
  const auto rows = run_peer(command(some, algorithm), some, kTrialLimit);
  if (!rows && algorithm == "default") throw Exception(rows.error());
  for (std::size_t k = 0; rows && k < rows->size(); ++k) {
    const double time = (*rows)[k].median_us;
    double& best = fastest[indices[k]];
    if ((*rows)[k].wrong > 0 || (best > 0 && time >= best)) continue;
    best = time;
    best_[indices[k]] = algorithm;
  }
}

}  // namespace gradwire::cli
