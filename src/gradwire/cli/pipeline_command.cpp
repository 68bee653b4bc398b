#include <algorithm>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "gradwire/base/file.h"
#include "gradwire/base/refuse.h"
#include "gradwire/base/units.h"
#include "gradwire/cli/command_line.h"
#include "gradwire/cli/commands.h"
#include "gradwire/pipeline/catalogue.h"
#include "gradwire/pipeline/drawing.h"
#include "gradwire/pipeline/search.h"
#include "gradwire/pipeline/verifier.h"
#include "gradwire/plan/network.h"

namespace gradwire::cli {
namespace {

struct PipelineArguments {
  std::string name;
  std::string from;
  int stages = 4;
  int micro_batches = 16;
  int chunks = 2;
  std::vector<int> kept;
  std::string compute = "20ms,20ms,20ms";
  std::string message = "0";
  std::string bandwidth = "1Gb/s";
  std::string latency = "0";
  int steps = 0;
  bool barrier = false;
  bool verify = false;
  bool compare = false;
  std::string network;
  std::string draw;
  std::string output;
};

void declare_options(CLI::App& app, PipelineArguments& given) {
  app.add_option(
      "name", given.name,
      "1f1b, gpipe, zero_bubble, ..., search: the fastest that fits; default: compare all");
  app.add_option("--stages", given.stages, "ranks of the pipeline, with one stage each")
      ->check(CLI::Range(1, kMaxRanks))
      ->capture_default_str();
  app.add_option("--micro-batches", given.micro_batches, "micro-batches of a step")
      ->check(CLI::Range(1, pipeline::kMaxMicroBatches))
      ->capture_default_str();
  app.add_option("--chunks", given.chunks, "interleaved: stages of each rank")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  app.add_option(
         "--kept", given.kept,
         "micro-batches whose activations a rank may keep; search: a number for all ranks, or a "
         "comma list with one for each; default in zero_bubble and search: twice the stages; 1f1b, "
         "2bw: as many as hide the transfers; pipedream: as many as stages")
      ->delimiter(',')
      ->check(CLI::Range(1, pipeline::kMaxMicroBatches));
  app.add_option("--from", given.from, "read the schedule from a file in PyTorch's CSV format");
  app.add_option("--compute", given.compute,
                 "times of a micro-batch in a stage: forward, gradients of inputs, gradients of "
                 "weights; 20,20,20ms")
      ->capture_default_str();
  app.add_option("--message", given.message,
                 "bytes of an activation between two stages; K, M, G are powers of two")
      ->capture_default_str();
  app.add_option("--bandwidth", given.bandwidth, "rate of a link in each direction")
      ->capture_default_str();
  app.add_option("--network", given.network,
                 "1gbe, 10gbe, ..., or a file of gradwire probe, in place of --bandwidth and "
                 "--latency: the slowest link's");
  app.add_option("--latency", given.latency, "one-way latency of a link")->capture_default_str();
  app.add_option("--steps", given.steps,
                 "steps to simulate; the mean of the second half is shown; default: 1, of "
                 "asynchronous schedules 16")
      ->check(CLI::Range(1, 1000));
  app.add_flag("--barrier", given.barrier, "a step begins when all ranks have ended the last one");
  app.add_flag("--verify", given.verify, "prove that it is correct for any timing");
  app.add_flag("--compare", given.compare, "print step time and memory of every schedule");
  app.add_option("--draw", given.draw, "text, svg: computations over time; csv: PyTorch's format")
      ->check(CLI::IsMember({"text", "svg", "csv"}));
  app.add_option("-o,--output", given.output, "file for the drawing; default: standard output");
}

/// Costs of a schedule with so many stages. Stages of one rank share its compute time.
pipeline::PipelineCosts costs_of(const PipelineArguments& given, int ranks, int stages) {
  std::vector<double> seconds;
  // Times without a unit have the last one's: 20,20,20ms.
  const std::string unit = given.compute.substr(given.compute.find_last_of("0123456789.") + 1);
  for (std::string part : CLI::detail::split(given.compute, ',')) {
    if (part.find_first_not_of("0123456789.") == std::string::npos) part += unit;
    seconds.push_back(std::chrono::duration<double>(value_or_throw(parse_duration(part))).count());
  }
  if (seconds.size() != 3) {
    refuse("--compute {}: expected three times, as in 20ms,20ms,20ms", given.compute);
  }
  const auto bytes = static_cast<double>(value_or_throw(parse_bytes(given.message)));
  const Duration latency = value_or_throw(parse_duration(given.latency));
  pipeline::PipelineCosts costs =
      pipeline::divided_costs({seconds[0], seconds[1], seconds[2]}, ranks, stages);
  costs.transfer = bytes / value_or_throw(parse_rate(given.bandwidth));
  costs.latency = std::chrono::duration<double>(latency).count();
  if (given.network.empty()) return costs;
  const plan::Network links = plan::network_named(given.network);
  costs.transfer = bytes / links.goodput();
  costs.latency = links.latency;
  return costs;
}

pipeline::PipelineSchedule searched_schedule(const PipelineArguments& given) {
  const auto ranks = static_cast<std::size_t>(given.stages);
  std::vector<int> kept = given.kept;
  if (kept.empty()) kept = {2 * given.stages};
  if (kept.size() == 1) kept.resize(ranks, kept.front());
  if (kept.size() != ranks) {
    refuse("--kept has {} numbers, but there are {} stages: expected one, or one for each",
           kept.size(), ranks);
  }
  return value_or_throw(
      pipeline::best_schedule({.ranks = given.stages,
                               .micro_batches = given.micro_batches,
                               .costs = costs_of(given, given.stages, given.stages),
                               .kept = std::move(kept),
                               .barrier = given.barrier,
                               .steps = std::max(given.steps, 1)}));
}

pipeline::PipelineSchedule schedule_of(const PipelineArguments& given, std::string_view name) {
  if (!given.from.empty()) {
    pipeline::PipelineSchedule schedule =
        value_or_throw(pipeline::from_csv(value_or_throw(read_file(given.from)), given.from));
    schedule.barrier = given.barrier;
    return schedule;
  }
  if (name == "search") return searched_schedule(given);
  if (given.kept.size() > 1) refuse("--kept: only search takes a number for each rank");
  pipeline::PipelineOptions options{.ranks = given.stages,
                                    .micro_batches = given.micro_batches,
                                    .chunks = given.chunks,
                                    .kept = given.kept.empty() ? 0 : given.kept.front()};
  options.costs = costs_of(given, given.stages, given.stages * chunks_of(name, options));
  pipeline::PipelineSchedule schedule = value_or_throw(make_pipeline(name, options));
  schedule.barrier = given.barrier;
  return schedule;
}

std::string milliseconds(double seconds) {
  return fmt::format("{:.4g} ms", seconds * 1e3);
}

/// `asynchronous`: steps to simulate by default if the pipeline never drains.
pipeline::Timeline timeline_of(const PipelineArguments& given,
                               const pipeline::PipelineSchedule& schedule, int asynchronous = 16) {
  const int usual = max_delay(schedule) > 0 ? asynchronous : 1;
  return simulate(schedule, costs_of(given, schedule.ranks(), schedule.stages()),
                  given.steps > 0 ? given.steps : usual);
}

int compare_all(const PipelineArguments& given) {
  fmt::print("{} stages, {} micro-batches, {}\n\n{:<15} {:>12} {:>8} {:>6}\n", given.stages,
             given.micro_batches, milliseconds(costs_of(given, 1, 1).transfer) + " a transfer",
             "schedule", "step", "bubble", "kept");
  for (const pipeline::Generator& generator : pipeline::generators()) {
    if (generator.name == "forward_only") continue;
    const pipeline::PipelineSchedule schedule = schedule_of(given, generator.name);
    const pipeline::Timeline timeline = timeline_of(given, schedule);
    fmt::print("{:<15} {:>12} {:>6.1f} % {:>6}\n", generator.name,
               milliseconds(timeline.step_seconds), 100 * timeline.bubble,
               std::ranges::max(kept_by_rank(schedule)));
  }
  return 0;
}

/// Staleness and copies of the weights, by stage; empty for schedules with one update a step.
std::string weights_text(const pipeline::PipelineSchedule& schedule) {
  if (schedule.weight_bounds.empty()) return "";
  std::vector<int> staleness, kept;
  for (const pipeline::WeightBounds& bounds : schedule.weight_bounds) {
    staleness.push_back(bounds.staleness);
    kept.push_back(bounds.kept);
  }
  return fmt::format("weights   stale by {} updates, in {} copies, by stage\n",
                     fmt::join(staleness, ", "), fmt::join(kept, ", "));
}

/// Returns false if the schedule is wrong.
bool report_verification(std::FILE* out, const pipeline::PipelineSchedule& schedule) {
  const auto found = pipeline::find_fault(schedule);
  if (found) {
    fmt::print(stderr, "gradwire schedule: {}: {}\n", name_of(found->fault), found->message);
    return false;
  }
  fmt::print(
      out,
      "verified  no deadlock; each computation occurs once, after its inputs; weight gradients "
      "are summed in the order of one process{}\n",
      schedule.weight_bounds.empty() ? "" : "; weights have the staleness and copies below");
  return true;
}

void draw(const PipelineArguments& given, const std::string& text) {
  if (given.output.empty()) {
    fmt::print("\n{}", text);
  } else {
    write_file(given.output, text);
  }
}

int show(const PipelineArguments& given) {
  const pipeline::PipelineSchedule schedule = schedule_of(given, given.name);
  fmt::print("{} of {} stages on {} ranks, {} micro-batches\n", schedule.name, schedule.stages(),
             schedule.ranks(), schedule.micro_batches);
  // A schedule from a file may be wrong: then it cannot be simulated.
  if ((given.verify || !given.from.empty()) && !report_verification(stdout, schedule)) return 1;
  const pipeline::Timeline timeline = timeline_of(given, schedule);
  fmt::print("step      {}\nbubble    {:.1f} %\nkept      {} micro-batches, by rank\n",
             milliseconds(timeline.step_seconds), 100 * timeline.bubble,
             fmt::join(kept_by_rank(schedule), ", "));
  fmt::print("{}", weights_text(schedule));
  if (given.draw == "csv") draw(given, value_or_throw(to_torch_csv(schedule)));
  if (given.draw == "svg") draw(given, draw_svg(schedule, timeline));
  if (given.draw == "text") draw(given, draw_text(schedule, timeline_of(given, schedule, 2)));
  return 0;
}

}  // namespace

bool is_pipeline(int argc, char** argv) {
  const auto begins = [](std::string_view word) {
    // Collectives have an "auto" too.
    if (word == "auto") return false;
    return word == "pipeline" || word == "search" || word.starts_with("--stages") ||
           word.starts_with("--micro-batches") || word.starts_with("--from") ||
           std::ranges::count(pipeline::generators(), word.substr(0, word.find(':')),
                              &pipeline::Generator::name) > 0;
  };
  return std::any_of(argv + std::min(argc, 1), argv + argc, begins);
}

int pipeline_command(int argc, char** argv) {
  CLI::App app("Pipeline schedules: draw, verify and simulate them", "gradwire schedule");
  PipelineArguments given;
  declare_options(app, given);
  if (const auto status = parse_command_line(app, argc, argv)) return *status;
  if (given.name == "pipeline") given.name.clear();
  return read_arguments([&] {
    return given.compare || (given.name.empty() && given.from.empty()) ? compare_all(given)
                                                                       : show(given);
  });
}

}  // namespace gradwire::cli
