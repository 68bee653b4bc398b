#include <algorithm>
#include <cstdio>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <unistd.h>

#include "gradwire/base/file.h"
#include "gradwire/base/refuse.h"
#include "gradwire/bootstrap/job.h"
#include "gradwire/cli/bench/step_compare.h"
#include "gradwire/cli/bench/step_options.h"
#include "gradwire/cli/bench/step_report.h"
#include "gradwire/cli/command_line.h"
#include "gradwire/cli/commands.h"
#include "gradwire/cli/launch/launch_arguments.h"
#include "gradwire/cli/worker_speeds.h"
#include "gradwire/comm/communicator.h"
#include "gradwire/plan/servers_advice.h"
#include "gradwire/trace/trace_session.h"
#include "gradwire/workload/profiles.h"

namespace gradwire::cli {
namespace {

/// The parsed command line.
struct StepBench {
  StepOptions options;
  workload::LayerProfile profile;
  std::vector<emulation::StepCase> cases;
  double limit = 0;
};

bool has_servers(const StepBench& bench) {
  return std::ranges::any_of(bench.cases, [](const auto& what) { return what.servers > 0; });
}

StepTable table_of(const StepBench& bench) {
  const bool zero =
      std::ranges::any_of(bench.cases, [](const auto& what) { return what.zero_stage > 0; });
  return {.limit = bench.limit, .zero = zero, .servers = has_servers(bench)};
}

/// Throws Exception(invalid_argument) for cases that leave no worker.
void check_ranks(const StepBench& bench, int ranks) {
  for (const emulation::StepCase& what : bench.cases) {
    const int most = what.beside_workers ? ranks : ranks - 1;
    if (what.servers <= most) continue;
    refuse("--servers {} of {} ranks: at most {} can serve{}; give more ranks with -n or --hosts",
           what.servers, ranks, most,
           what.beside_workers ? "" : ", as others must work (--place workers lets ranks do both)");
  }
  for (const emulation::StepCase& what : bench.cases) {
    const int workers = what.beside_workers ? ranks : ranks - what.servers;
    for (const auto& [worker, slow] : slow_workers(bench.options.slow)) {
      if (worker < workers) continue;
      refuse("--slow {}: there are {} workers beside --servers {}", worker, workers, what.servers);
    }
  }
}

/// Prints what the cases should do otherwise, each advice once.
void print_advice(const StepBench& bench, const std::vector<StepRow>& rows) {
  std::set<std::string> lines;
  for (const StepRow& row : rows) {
    if (row.what.servers == 0 || !row.figures.served) continue;
    servers::ServerPolicy policy = row.what.policy;
    policy.workers = row.figures.ranks;
    lines.insert(plan::advice_on_slow_worker(policy, {.slow = slow_workers(bench.options.slow)}));
  }
  for (const std::string& line : lines) {
    if (!line.empty()) fmt::print("# advice: {}\n", line);
  }
}

void write_reports(const StepBench& bench, const std::vector<StepRow>& rows) {
  const StepOptions& options = bench.options;
  if (options.json == "-") fmt::print("{}", step_json(rows, bench.limit));
  if (!options.json.empty() && options.json != "-")
    write_file(options.json, step_json(rows, bench.limit));
  if (options.plot.empty()) return;
  const std::string title =
      fmt::format("{} on {} ranks: efficiency", bench.profile.name, rows.front().figures.ranks);
  write_file(options.plot, step_svg(rows, title, bench.limit));
}

std::string host_name() {
  std::string name(256, '\0');
  if (::gethostname(name.data(), name.size() - 1) != 0) return "";
  name.resize(name.find('\0'));
  return name;
}

/// `pairs`: for cases with servers; may be null if there are none.
int measure_all(const std::shared_ptr<Communicator>& communicator,
                const std::shared_ptr<Communicator>& pairs, const StepBench& bench) {
  const bool reports = communicator->rank() == 0;
  const bool prints = reports && bench.options.json != "-";
  emulation::StepMeasurementOptions how = measurement_options(bench.options, bench.profile);
  how.pairs = pairs;
  emulation::SteadyAlarm alarm;
  TraceSession session({.file = bench.options.trace, .host = host_name()},
                       trace_peers(communicator), alarm);
  const StepTable table = table_of(bench);
  if (prints) fmt::print("{}", table.head(bench.profile.name, communicator->size()));
  std::vector<StepRow> rows;
  for (const emulation::StepCase& what : bench.cases) {
    rows.push_back({.what = what,
                    .figures = emulation::measure_step(communicator, bench.profile, what, how,
                                                       alarm, session.recorder())});
    if (!prints) continue;
    fmt::print("{}", table.line(rows.back()));
    std::fflush(stdout);
  }
  auto summary = session.finish();
  if (summary) {
    summary->in_step = std::ranges::all_of(bench.cases, [](const emulation::StepCase& what) {
      return what.servers == 0 || what.policy.has_common_steps();
    });
  }
  if (prints) print_advice(bench, rows);
  if (prints && summary) fmt::print("{}", format_trace_summary(*summary));
  if (reports) write_reports(bench, rows);
  return 0;
}

int compare_all(const StepBench& bench) {
  const std::vector<StepRow> rows = compare_steps(bench.options, bench.cases, bench.profile);
  if (bench.options.json != "-") {
    const StepTable table = table_of(bench);
    fmt::print("{}", table.head(bench.profile.name, rows.front().figures.ranks));
    for (const StepRow& row : rows) fmt::print("{}", table.line(row));
    print_advice(bench, rows);
  }
  write_reports(bench, rows);
  return 0;
}

/// Parses and checks the arguments before ranks start. Returns how to start ranks; nullopt: this is
/// a rank.
std::optional<LaunchOptions> read_options(StepBench& bench, const bootstrap::Job& job) {
  const bool starts = bench.options.launch.starts_ranks(job);
  check_fits(bench.options.launch, job);
  bench.profile = workload::profile_named(bench.options.profile);
  bench.cases = step_cases(bench.options);
  bench.limit = limit_of(bench.options);
  measurement_options(bench.options, bench.profile);
  if (!bench.options.trace.empty() && bench.cases.size() > 1) {
    refuse("--trace records a single case: give one value for --codec and each other list");
  }
  if (!bench.options.compare.empty() && !starts) {
    refuse("--compare starts the ranks itself, outside any job: give -n or --hosts");
  }
  if (!starts) return std::nullopt;
  LaunchOptions launch = launch_options_of(bench.options.launch);
  launch.name = "gradwire bench step";
  return launch;
}

}  // namespace

int bench_step_with_store(int argc, char** argv, const StoreOpener& open_store) {
  const bootstrap::Environment environment = bootstrap::process_environment();
  StepBench bench;
  CLI::App app("Measures training steps: emulated compute, real communication",
               "gradwire bench step");
  declare(app, bench.options, environment);
  if (const auto status = parse_command_line(app, argc, argv)) return *status;
  const bootstrap::Job job = bootstrap::Job::from_environment(environment);
  const auto launch = read_arguments([&] { return read_options(bench, job); });
  if (!bench.options.compare.empty()) return compare_all(bench);
  if (launch) {
    std::vector<std::string> words{"bench"};
    words.insert(words.end(), argv, argv + argc);
    return run_self(words, *launch);
  }
  check_ranks(bench, job.world_size);
  const auto store = open_store(job);
  const std::shared_ptr<Communicator> communicator = Communicator::connect(job, {}, store);
  std::shared_ptr<Communicator> pairs;
  if (has_servers(bench)) {
    const CommunicatorOptions options{.scope = "servers", .failure_domain = FailureDomain::pair};
    pairs = Communicator::connect(job, options, store);
  }
  return measure_all(communicator, pairs, bench);
}

}  // namespace gradwire::cli
