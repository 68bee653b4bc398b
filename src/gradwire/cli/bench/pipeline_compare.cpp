#include "gradwire/cli/bench/pipeline_compare.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "gradwire/cli/launch/process.h"
#include "gradwire/pipeline/catalogue.h"

namespace gradwire::cli {
namespace {

/// torch.distributed.pipelining.
constexpr TorchPeer kPeers[] = {{"torch", "gloo"}, {"torch-gradwire", "gradwire"}};

/// Schedules on one system, measured by one command, with the results of its rounds.
struct Contender {
  std::string system;
  Words command;
  std::size_t schedules = 1;
  std::vector<std::vector<PipelineRow>> rounds;
};

Words own_command(const PipelineBenchOptions& options, const std::string& program) {
  Words words{program,
              "bench",
              "pipeline",
              "--json",
              "-",
              "--micro-batches",
              fmt::to_string(options.micro_batches),
              "--schedule",
              fmt::format("{}", fmt::join(options.schedules, ",")),
              "--forward-ms",
              fmt::to_string(options.forward_ms),
              "--input-ms",
              fmt::to_string(options.input_ms),
              "--weight-ms",
              fmt::to_string(options.weight_ms),
              "--message-bytes",
              options.message,
              "--steps",
              fmt::to_string(options.steps),
              "--warmup",
              fmt::to_string(options.warmup)};
  if (options.barrier) words.emplace_back("--barrier");
  add_launch(words, options.launch);
  return words;
}

Words peer_command(const PipelineBenchOptions& options, const std::string& schedule, int chunks,
                   const TorchPeer& peer, const std::string& program) {
  const nlohmann::json job = {{"schedule", schedule},
                              {"chunks", chunks},
                              {"micro_batches", options.micro_batches},
                              {"forward_ms", options.forward_ms},
                              {"input_ms", options.input_ms},
                              {"weight_ms", options.weight_ms},
                              {"message_bytes", measurement_options(options).message_bytes},
                              {"barrier", options.barrier},
                              {"warmup", options.warmup},
                              {"steps", options.steps}};
  Words words = python_command(options.launch, options.python, program);
  words.insert(words.end(), {bench_file("pipeline_step.py"), job.dump(), "--backend",
                             std::string(peer.backend)});
  return words;
}

std::vector<Contender> contenders(const PipelineBenchOptions& options) {
  const std::string program = own_executable();
  std::vector<Contender> all{
      {"gradwire", own_command(options, program), options.schedules.size(), {}}};
  for (const TorchPeer& peer :
       installed_peers("gradwire bench pipeline", options.compare, kPeers, options.python)) {
    for (const std::string& schedule : options.schedules) {
      const auto theirs = torch_schedule(schedule);
      if (!theirs) continue;
      const int chunks = pipeline::chunks_of(schedule, {});
      all.push_back(
          {std::string(peer.system), peer_command(options, *theirs, chunks, peer, program), 1, {}});
    }
  }
  return all;
}

void take_turn(Contender& contender) {
  const std::string output = output_of(contender.system, contender.command);
  contender.rounds.push_back(value_or_throw(parse_pipeline_rows(output, contender.schedules)));
  for (PipelineRow& row : contender.rounds.back()) row.system = contender.system;
}

}  // namespace

std::optional<std::string> torch_schedule(std::string_view schedule) {
  const std::string_view name = schedule.substr(0, schedule.find(':'));
  if (name == "gpipe") return "GPipe";
  if (name == "1f1b") return "1F1B";
  if (name == "interleaved") return "Interleaved1F1B";
  if (name == "zero_bubble_v") return "ZBVZeroBubble";
  return std::nullopt;
}

std::vector<PipelineRow> compare_pipelines(const PipelineBenchOptions& options) {
  std::vector<Contender> all = contenders(options);
  for (int round = 0; round < options.rounds; ++round) {
    for (Contender& contender : all) {
      fmt::print(stderr, "# round {} of {}: {}\n", round + 1, options.rounds, contender.system);
      take_turn(contender);
    }
  }
  std::vector<PipelineRow> rows;
  for (const Contender& contender : all) {
    for (std::size_t i = 0; i < contender.schedules; ++i) {
      std::vector<PipelineRow> same;
      for (const auto& round : contender.rounds) same.push_back(round[i]);
      rows.push_back(median_round(same));
    }
  }
  return rows;
}

}  // namespace gradwire::cli
