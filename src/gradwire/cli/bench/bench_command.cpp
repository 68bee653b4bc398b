#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "gradwire/base/file.h"
#include "gradwire/base/refuse.h"
#include "gradwire/bootstrap/engine_name.h"
#include "gradwire/bootstrap/job.h"
#include "gradwire/cli/bench/bench_options.h"
#include "gradwire/cli/bench/bench_report.h"
#include "gradwire/cli/bench/collective_bench.h"
#include "gradwire/cli/bench/compare.h"
#include "gradwire/cli/command_line.h"
#include "gradwire/cli/commands.h"
#include "gradwire/cli/launch/launch_arguments.h"
#include "gradwire/comm/communicator.h"

namespace gradwire::cli {
namespace {

void write_reports(const BenchOptions& options, const std::vector<SystemRow>& rows) {
  if (options.json == "-") fmt::print("{}", to_json(rows));
  if (!options.json.empty() && options.json != "-") write_file(options.json, to_json(rows));
  if (!options.plot.empty())
    write_file(options.plot, report::to_svg(bandwidth_plot(rows, limit_gbps(options))));
}

int status_of(const std::vector<SystemRow>& rows) {
  std::size_t wrong = 0;
  for (const SystemRow& row : rows) wrong += row.row.wrong;
  if (wrong > 0) fmt::print(stderr, "gradwire bench: {} elements are wrong\n", wrong);
  return wrong == 0 ? 0 : 1;
}

/// Prints the output of --explain on rank 0.
class Explainer {
 public:
  Explainer(Communicator& communicator, const BenchOptions& options,
            const bootstrap::Environment& environment)
      : communicator_(communicator), options_(options), environment_(environment) {
    if (wanted()) print_text(links_explained(environment));
  }

  void explain(const BenchCase& what) {
    if (!wanted()) return;
    print_text(estimates_explained(what, communicator_.explain(what.collective, what.bytes),
                                   overriding_choice(options_, what.collective, environment_)));
  }

 private:
  bool wanted() const { return options_.explain && communicator_.rank() == 0; }

  /// With JSON on stdout, prints to stderr.
  void print_text(const std::string& text) const {
    fmt::print(options_.json == "-" ? stderr : stdout, "{}", text);
  }

  Communicator& communicator_;
  const BenchOptions& options_;
  const bootstrap::Environment& environment_;
};

int measure_all(Communicator& communicator, const BenchOptions& options,
                const bootstrap::Environment& environment) {
  const bool reports = communicator.rank() == 0;
  const bool prints = reports && options.json != "-";
  const double limit = limit_gbps(options);
  const auto cases = make_cases(options, communicator.size());
  const bool several = cases.size() > options.sizes.size();
  std::vector<SystemRow> rows;
  Explainer explainer(communicator, options, environment);
  if (prints) fmt::print("{}", table_head(communicator.size(), limit));
  for (const BenchCase& what : cases) {
    const bool new_size = rows.empty() || rows.back().row.measured.bytes != what.bytes;
    if (new_size) explainer.explain(what);
    const std::string name = several ? what.algorithm : "gradwire";
    rows.push_back({.system = name, .row = measure(communicator, what)});
    if (!prints) continue;
    fmt::print("{}", table_line(rows.back().row, limit));
    std::fflush(stdout);
  }
  if (!reports) return 0;
  write_reports(options, rows);
  return status_of(rows);
}

void check_comparison(const BenchOptions& options, const bootstrap::Job& job) {
  if (!options.launch.starts_ranks(job)) {
    refuse("--compare starts the ranks itself, outside any job: give -n or --hosts");
  }
  check_peers(options);
}

int compare_all(const BenchOptions& options, const bootstrap::Environment& environment) {
  const auto table =
      compare(options, make_cases(options, ranks_to_start(options.launch)), environment);
  std::vector<SystemRow> rows;
  for (const auto& line : table) rows.insert(rows.end(), line.begin(), line.end());
  if (options.json != "-") fmt::print("{}", comparison_table(table, limit_gbps(options)));
  write_reports(options, rows);
  return status_of(rows);
}

int measure_backend_alone(const BenchOptions& options) {
  const int ranks = ranks_to_start(options.launch);
  const std::vector<SystemRow> rows = measure_backend(options, make_cases(options, ranks));
  if (options.json != "-") {
    fmt::print("{}", table_head(ranks, limit_gbps(options)));
    for (const SystemRow& row : rows) fmt::print("{}", table_line(row.row, limit_gbps(options)));
  }
  write_reports(options, rows);
  return status_of(rows);
}

/// Checks the arguments before ranks start. Returns how to start ranks; nullopt: this is a rank.
std::optional<LaunchOptions> checked(const BenchOptions& options, const bootstrap::Job& job) {
  check_fits(options.launch, job);
  limit_gbps(options);
  const bool starts = options.launch.starts_ranks(job);
  make_cases(options, starts ? ranks_to_start(options.launch) : job.world_size);
  if (bootstrap::is_torch_backend(options.launch.engine)) {
    if (!starts)
      refuse("--engine {} starts the ranks itself: give -n or --hosts", options.launch.engine);
    check_backend(options);
    return std::nullopt;
  }
  if (!options.compare.empty()) check_comparison(options, job);
  if (!starts) return std::nullopt;
  LaunchOptions launch = launch_options_of(options.launch);
  launch.name = "gradwire bench";
  return launch;
}

}  // namespace

int bench_with_store(int argc, char** argv, const StoreOpener& open_store) {
  if (argc > 1 && std::string(argv[1]) == "step")
    return bench_step_with_store(argc - 1, argv + 1, open_store);
  if (argc > 1 && std::string(argv[1]) == "pipeline")
    return bench_pipeline_with_store(argc - 1, argv + 1, open_store);
  const bootstrap::Environment environment = bootstrap::process_environment();
  BenchOptions options;
  CLI::App app("Measures collective operations, like nccl-tests", "gradwire bench");
  declare(app, options, environment);
  if (const auto status = parse_command_line(app, argc, argv)) return *status;
  const bootstrap::Job job = bootstrap::Job::from_environment(environment);
  const auto launch = read_arguments([&] { return checked(options, job); });
  if (bootstrap::is_torch_backend(options.launch.engine)) return measure_backend_alone(options);
  if (!options.compare.empty()) return compare_all(options, environment);
  if (launch) return run_self(std::vector<std::string>(argv, argv + argc), *launch);
  const auto communicator = Communicator::connect(job, {}, open_store(job));
  return measure_all(*communicator, options, environment);
}

int bench_command(int argc, char** argv) {
  if (argc > 1 && std::string(argv[1]) == "codec") return bench_codec_command(argc - 1, argv + 1);
  return bench_with_store(argc, argv, [](const bootstrap::Job&) { return nullptr; });
}

}  // namespace gradwire::cli
