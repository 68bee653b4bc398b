#include <cstdio>
#include <numeric>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "gradwire/base/file.h"
#include "gradwire/base/refuse.h"
#include "gradwire/base/suggest.h"
#include "gradwire/base/units.h"
#include "gradwire/cli/command_line.h"
#include "gradwire/cli/commands.h"
#include "gradwire/cli/schedule_links.h"
#include "gradwire/engine/simulation.h"
#include "gradwire/pipeline/catalogue.h"
#include "gradwire/schedule/catalogue.h"
#include "gradwire/schedule/cost/cost.h"
#include "gradwire/schedule/describe.h"
#include "gradwire/schedule/draw/drawing.h"
#include "gradwire/schedule/verify/verifier.h"

namespace gradwire::cli {
namespace {

struct Options {
  std::string name;
  std::string collective = "all_reduce";
  LinkOptions links;
  Rank root = 0;
  Rank target = 0;
  std::string draw;
  bool verify = false;
  bool simulate = false;
  bool compare = false;
  std::string bytes = "1M";
  std::string segment = "128K";
  std::string output;
};

void declare_options(CLI::App& app, Options& options) {
  app.add_option(
      "name", options.name,
      "ring, direct, tree, ..., or a pipeline schedule: 1f1b, gpipe, ...; default: list all");
  app.add_option("-n,--ranks", options.links.ranks, "number of ranks; default: 4")
      ->check(CLI::Range(1, kMaxRanks));
  app.add_option("--collective", options.collective, "all_reduce, broadcast, all_gather, ...")
      ->capture_default_str();
  app.add_option("--root", options.root,
                 "source rank of broadcast, scatter and point_to_point; destination rank of reduce "
                 "and gather");
  app.add_option("--target", options.target, "destination rank of point_to_point");
  app.add_option("--draw", options.draw,
                 "draw the schedule, or with --simulate the simulated run, as text or svg")
      ->check(CLI::IsMember({"text", "svg"}));
  app.add_flag("--verify", options.verify, "prove that it is correct for any size and timing");
  app.add_flag("--simulate", options.simulate, "run the real executors over simulated links");
  app.add_flag("--compare", options.compare, "print the cost of every algorithm of the collective");
  app.add_option("--latency", options.links.latency, "one-way latency of a link")
      ->capture_default_str();
  app.add_option("--bandwidth", options.links.bandwidth,
                 "rate of a host's port in each direction: one for all hosts or a comma list; "
                 "1Gb/s+400Mb/s is two interfaces")
      ->capture_default_str();
  app.add_option("--per-host", options.links.per_host, "ranks per host")
      ->check(CLI::Range(1, kMaxRanks))
      ->capture_default_str();
  app.add_option("--topology", options.links.topology_file,
                 "file of gradwire probe with hosts and links, in place of --ranks, --per-host, "
                 "--latency and --bandwidth");
  app.add_option("--bytes", options.bytes, "size of the whole data; K, M, G are powers of two")
      ->capture_default_str();
  app.add_option("--segment", options.segment, "bytes per segment, the unit of forwarding")
      ->capture_default_str();
  app.add_option("-o,--output", options.output, "file for the drawing; default: standard output");
}

/// The parsed options.
struct Setting {
  schedule::Schedule schedule;
  topology::Topology topology;
  std::size_t elements;  ///< Number of float32 elements of all chunks together.
  std::size_t segment_bytes;

  schedule::ChunkLayout layout() const { return {schedule.chunks, elements, sizeof(float)}; }
};

schedule::Collective collective_of(const Options& options) {
  if (const auto collective = schedule::collective_named(options.collective)) return *collective;
  std::vector<std::string_view> known;
  for (schedule::Collective collective : schedule::all_collectives())
    known.push_back(name_of(collective));
  refuse(unknown_name("collective", options.collective, known));
}

/// Rounds to whole elements; if each rank has a part, to the same number of elements for each.
std::size_t elements_of(const schedule::Schedule& schedule, std::size_t bytes) {
  const schedule::Collective collective = schedule.spec.collective;
  const std::size_t unit = schedule::has_parts(collective) ? schedule.chunks : 1;
  return collective == schedule::Collective::barrier ? 0 : bytes / sizeof(float) / unit * unit;
}

Setting setting_of(const Options& options, const topology::Topology& topology,
                   std::string_view name) {
  schedule::Schedule schedule = value_or_throw(schedule::make_schedule(
      {collective_of(options), options.root, options.target}, name, topology));
  const std::size_t elements = elements_of(schedule, value_or_throw(parse_bytes(options.bytes)));
  const std::size_t segment = value_or_throw(parse_bytes(options.segment));
  if (segment < sizeof(float) || segment % sizeof(float) != 0) {
    refuse("--segment: expected a multiple of 4 bytes, the size of an element, found {}", segment);
  }
  return {std::move(schedule), topology, elements, segment};
}

int list_algorithms() {
  for (const schedule::Algorithm& algorithm : schedule::algorithm_catalogue()) {
    fmt::print("{:<15} {:<19} {}\n", name_of(algorithm.collective), algorithm.name,
               algorithm.summary);
  }
  for (const pipeline::Generator& generator : pipeline::generators()) {
    fmt::print("{:<15} {:<19} {}\n", "pipeline", generator.name, generator.summary);
  }
  return 0;
}

void write(const std::string& path, const std::string& text) {
  if (path.empty()) {
    fmt::print("{}", text);
  } else {
    write_file(path, text);
  }
}

std::string range_text(const std::vector<std::size_t>& bytes) {
  const std::string min = format_bytes(std::ranges::min(bytes));
  const std::string max = format_bytes(std::ranges::max(bytes));
  return min == max ? max : fmt::format("{} to {}", min, max);
}

/// Returns the cost of the schedule according to the cost model, as text.
std::string summary(const Setting& setting, const schedule::ScheduleCost& cost,
                    const schedule::Estimate& estimate) {
  const schedule::Counts counts = cost.count(setting.layout());
  const auto messages =
      std::accumulate(counts.messages_sent.begin(), counts.messages_sent.end(), std::size_t{0});
  return fmt::format(
      "{}, {} over {}\n"
      "steps     {}\n"
      "messages  {}\n"
      "sent      {} by each rank\n"
      "estimate  {}\n",
      describe(setting.schedule), format_bytes(setting.elements * sizeof(float)),
      describe(setting.topology), counts.steps, messages, range_text(counts.bytes_sent),
      format_duration(estimate.total));
}

/// Returns false if the schedule is wrong.
bool report_verification(std::FILE* out, const schedule::Schedule& schedule) {
  const auto finding = schedule::find_fault(schedule);
  if (finding) {
    fmt::print(stderr, "gradwire schedule: {}: {}\n", name_of(finding->fault), finding->message);
    return false;
  }
  fmt::print(out,
             "verified  no deadlock, no race, correct and identical on every rank, for any size\n");
  return true;
}

/// Returns false if a rank ended with wrong data.
bool report_simulation(std::FILE* out, const engine::ScheduleSimulation& run) {
  fmt::print(out, "simulated {}, executors sent {} by the busiest rank, result {}\n",
             format_duration(run.time), format_bytes(std::ranges::max(run.payload_bytes)),
             run.correct ? "correct" : "WRONG");
  return run.correct;
}

void draw(const Options& options, const schedule::Drawing& drawing) {
  if (options.draw == "svg") return write(options.output, schedule::draw_svg(drawing));
  if (options.output.empty()) fmt::print("\n");
  write(options.output, schedule::draw_text(drawing));
}

/// Prints a row for every algorithm of the collective.
int compare(const Options& options) {
  const topology::Topology topology = topology_of(options.links);
  fmt::print("{}, {} over {}\n\n{:<19} {:>5} {:>10} {:>10}  {}\n", options.collective,
             options.bytes, describe(topology), "algorithm", "steps", "messages", "estimate",
             "sent by each rank");
  for (std::string_view name : schedule::algorithm_names(collective_of(options))) {
    const Setting setting = setting_of(options, topology, name);
    const schedule::ScheduleCost cost(setting.schedule);
    const schedule::Counts counts = cost.count(setting.layout());
    const auto messages =
        std::accumulate(counts.messages_sent.begin(), counts.messages_sent.end(), std::size_t{0});
    const schedule::Estimate estimate =
        cost.estimate(topology, setting.layout(), {.segment_bytes = setting.segment_bytes});
    fmt::print("{:<19} {:>5} {:>10} {:>10}  {}\n", name, counts.steps, messages,
               format_duration(estimate.total), range_text(counts.bytes_sent));
  }
  return 0;
}

int show(const Options& options) {
  const Setting setting = setting_of(options, topology_of(options.links), options.name);
  const schedule::ScheduleCost cost(setting.schedule);
  const schedule::Estimate estimate =
      cost.estimate(setting.topology, setting.layout(), {.segment_bytes = setting.segment_bytes});
  // An SVG on standard output must be alone there, so that it can be redirected.
  std::FILE* out = options.draw == "svg" && options.output.empty() ? stderr : stdout;
  fmt::print(out, "{}", summary(setting, cost, estimate));
  bool right = true;
  if (options.verify) right = report_verification(out, setting.schedule);
  schedule::Drawing drawing = schedule::drawing_of(cost, estimate);
  if (options.simulate) {
    const engine::ScheduleSimulation run = engine::simulate(
        setting.schedule, setting.topology, setting.elements, setting.segment_bytes);
    right = report_simulation(out, run) && right;
    drawing = schedule::drawing_of(cost.programs(), run.ops, "simulated");
  }
  if (!options.draw.empty()) draw(options, drawing);
  return right ? 0 : 1;
}

}  // namespace

int schedule_command(int argc, char** argv) {
  if (is_pipeline(argc, argv)) return pipeline_command(argc, argv);
  CLI::App app("Shows a collective algorithm: its cost, its correctness, its execution",
               "gradwire schedule");
  Options options;
  declare_options(app, options);
  if (const auto status = parse_command_line(app, argc, argv)) return *status;
  if (options.compare) return read_arguments([&] { return compare(options); });
  if (options.name.empty()) return list_algorithms();
  return read_arguments([&] { return show(options); });
}

}  // namespace gradwire::cli
