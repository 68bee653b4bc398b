#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "gradwire/base/suggest.h"
#include "gradwire/base/units.h"
#include "gradwire/cli/bench/bench_with_store.h"
#include "gradwire/cli/bench/collective_bench.h"
#include "gradwire/cli/command_line.h"
#include "gradwire/cli/commands.h"
#include "gradwire/cli/launch/run_self.h"
#include "gradwire/comm/communicator.h"
#include "gradwire/comm/job.h"
#include "gradwire/comm/tuner.h"
#include "gradwire/schedule/catalogue.h"

namespace gradwire {
namespace {

struct BenchOptions {
  std::string collective = "all_reduce";
  int ranks = 0;
  std::vector<std::string> sizes{"4", "256", "4K", "64K", "1M", "16M", "64M"};
  std::string type = "float32";
  std::string op = "sum";
  std::string algorithm;
  std::string json;
  int iterations = 0;
  int warmup = 2;
};

void describe(CLI::App& app, BenchOptions& options) {
  app.add_option("collective", options.collective,
                 "all_reduce, all_gather, reduce_scatter, broadcast or barrier")
      ->capture_default_str();
  app.add_option("-n,--ranks", options.ranks,
                 "start this many ranks here; without it, be a rank of the job that started us")
      ->check(CLI::Range(1, kMaxRanks));
  app.add_option("--sizes", options.sizes, "bytes, a comma list; K, M, G are powers of two")
      ->delimiter(',')
      ->capture_default_str();
  app.add_option("--type", options.type, "element type")->capture_default_str();
  app.add_option("--op", options.op, "reduction: sum, mean, min, max, product")
      ->capture_default_str();
  app.add_option("--algorithm", options.algorithm,
                 "ring, direct, ...; default: the tuner's choice");
  app.add_option("--iterations", options.iterations,
                 "counted operations per size; default: about a second's worth")
      ->check(CLI::Range(1, 1000000));
  app.add_option("--warmup", options.warmup, "operations per size before those counted")
      ->check(CLI::Range(0, 1000000))
      ->capture_default_str();
  app.add_option("--json", options.json, "file that rank 0 writes the rows to");
}

template <class T, class Named>
T named(std::string_view what, const std::string& name, std::span<const T> all, Named by_name) {
  if (const std::optional<T> found = by_name(name)) return *found;
  std::vector<std::string_view> known;
  for (const T& value : all) known.push_back(name_of(value));
  throw Exception(ErrorKind::invalid_argument, unknown_name(what, name, known));
}

BenchCase make_case(const BenchOptions& options, int ranks, const std::string& size) {
  const std::vector<Collective> collectives = benchable_collectives();
  BenchCase made;
  made.collective = named<Collective>("collective", options.collective, collectives,
                                      [&](const std::string& name) -> std::optional<Collective> {
                                        for (Collective c : collectives) {
                                          if (name_of(c) == name) return c;
                                        }
                                        return std::nullopt;
                                      });
  made.type = named<DataType>("type", options.type, all_data_types(), data_type_named);
  made.op = named<ReduceOp>("reduction", options.op, all_reduce_ops(), reduce_op_named);
  made.bytes = value_or_throw(parse_bytes(size));
  made.bytes -= made.bytes % size_of(made.type);
  made.iterations = options.iterations;
  made.warmup = options.warmup;
  const Topology topology = Tuner::assumed(ranks);
  made.algorithm = options.algorithm.empty() ? Tuner(topology).choose(made.collective, made.bytes)
                                             : options.algorithm;
  value_or_throw(make_schedule({.collective = made.collective}, made.algorithm, topology));
  return made;
}

std::vector<BenchCase> make_cases(const BenchOptions& options, int ranks) {
  std::vector<BenchCase> cases;
  for (const std::string& size : options.sizes) cases.push_back(make_case(options, ranks, size));
  return cases;
}

void write_file(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  file << text;
  file.close();
  if (!file) throw Exception(ErrorKind::system, fmt::format("cannot write {}", path));
}

int measure_all(Communicator& communicator, const BenchOptions& options) {
  const bool speaks = communicator.rank() == 0;
  std::vector<BenchRow> rows;
  std::size_t wrong = 0;
  if (speaks) fmt::print("{}", table_head(communicator));
  for (const BenchCase& what : make_cases(options, communicator.size())) {
    rows.push_back(measure(communicator, what));
    wrong += rows.back().wrong;
    if (!speaks) continue;
    fmt::print("{}", table_line(rows.back()));
    std::fflush(stdout);
  }
  if (speaks && !options.json.empty()) write_file(options.json, to_json(rows));
  if (speaks && wrong > 0) fmt::print(stderr, "gradwire bench: {} elements are wrong\n", wrong);
  return wrong == 0 ? 0 : 1;
}

}  // namespace

int bench_with_store(int argc, char** argv, const StoreOpener& open_store) {
  BenchOptions options;
  CLI::App app("Measures collective operations, as nccl-tests does", "gradwire bench");
  describe(app, options);
  if (const auto status = parse_command_line(app, argc, argv)) return *status;
  const Job job = Job::from_environment();
  make_cases(options,
             options.ranks > 0 ? options.ranks : job.world_size);  // Refused before ranks start.
  if (options.ranks > 0 && job.launcher == "none") {
    return run_self(std::vector<std::string>(argv, argv + argc), options.ranks, "gradwire bench");
  }
  const auto communicator = Communicator::connect(job, {}, open_store(job));
  return measure_all(*communicator, options);
}

int bench_command(int argc, char** argv) {
  return bench_with_store(argc, argv, [](const Job&) { return nullptr; });
}

}  // namespace gradwire
