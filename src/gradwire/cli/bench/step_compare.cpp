#include "gradwire/cli/bench/step_compare.h"

#include <algorithm>
#include <string_view>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "gradwire/cli/launch/process.h"

namespace gradwire::cli {
namespace {

/// One case on one system, with the results of its rounds.
struct Contender {
  std::string system;
  emulation::StepCase what;
  Words command;
  std::vector<StepRow> rounds;
};

/// Returns the job description for ddp_step.py, its one argument, as JSON.
std::string ddp_job(const StepOptions& options, const emulation::StepCase& what,
                    const workload::LayerProfile& profile) {
  const emulation::StepMeasurementOptions how = measurement_options(options, profile);
  nlohmann::json job = {
      {"codec", what.codec},
      {"accumulate", what.accumulate},
      {"overlap", name_of(what.overlap)},
      {"compute_ms", std::chrono::duration<double, std::milli>(how.compute).count()},
      {"steps", how.steps},
      {"seconds", options.seconds},
      {"warmup", how.warmup},
      {"single_steps", how.single_steps}};
  for (const workload::ProfileLayer& layer : profile.layers) {
    nlohmann::json shapes = nlohmann::json::array();
    for (const workload::ProfileTensor& tensor : layer.parameters) shapes.push_back(tensor.shape);
    job["layers"].push_back({layer.forward, layer.backward, std::move(shapes)});
  }
  return job.dump();
}

/// PyTorch's DDP.
constexpr TorchPeer kPeers[] = {{"ddp", "gloo"}, {"ddp-gradwire", "gradwire"}};

bool same(const emulation::StepCase& a, const emulation::StepCase& b) {
  return a.codec == b.codec && a.accumulate == b.accumulate && a.local() == b.local() &&
         a.overlap == b.overlap && a.zero_stage == b.zero_stage;
}

std::vector<Contender> contenders(const StepOptions& options,
                                  const std::vector<emulation::StepCase>& cases,
                                  const workload::LayerProfile& profile) {
  const std::string program = own_executable();
  const auto peers =
      installed_peers("gradwire bench step", options.compare, kPeers, options.python);
  std::vector<Contender> all;
  for (const emulation::StepCase& what : cases) {
    all.push_back({"gradwire", what, step_command(options, what, program), {}});
    const auto theirs = ddp_case(what);
    if (!theirs) continue;
    for (const TorchPeer& peer : peers) {
      const auto measured = [&](const Contender& c) {
        return c.system == peer.system && same(c.what, *theirs);
      };
      if (std::ranges::any_of(all, measured)) continue;
      Words words = ddp_command(options, *theirs, profile, program, bench_file("ddp_step.py"));
      words.insert(words.end(), {"--backend", std::string(peer.backend)});
      all.push_back({std::string(peer.system), *theirs, std::move(words), {}});
    }
  }
  return all;
}

void take_turn(Contender& contender) {
  const std::string output = output_of(contender.system, contender.command);
  contender.rounds.push_back(
      value_or_throw(parse_step_rows(output, contender.system, {&contender.what, 1})).front());
}

}  // namespace

std::optional<emulation::StepCase> ddp_case(const emulation::StepCase& what) {
  const bool known = what.codec == "none" || what.codec == "bf16" || what.codec == "fp16" ||
                     what.codec.starts_with("power_sgd");
  if (!known || what.local_steps > 1 || what.zero_stage > 0 || what.servers > 0)
    return std::nullopt;
  emulation::StepCase nearest = what;
  if (what.overlap == step::Overlap::full) nearest.overlap = step::Overlap::backward;
  return nearest;
}

Words step_command(const StepOptions& options, const emulation::StepCase& what,
                   const std::string& program) {
  Words words{program,
              "bench",
              "step",
              "--json",
              "-",
              "--profile",
              options.profile,
              "--codec",
              what.codec,
              "--accumulate",
              fmt::to_string(what.accumulate),
              "--local-steps",
              fmt::to_string(what.local_steps),
              "--fragments",
              fmt::to_string(what.fragments),
              "--overlap-steps",
              fmt::to_string(what.overlap_steps),
              "--overlap",
              std::string(name_of(what.overlap)),
              "--zero-stage",
              fmt::to_string(what.zero_stage),
              "--prefetch",
              fmt::to_string(options.prefetch),
              "--seconds",
              fmt::to_string(options.seconds),
              "--warmup",
              fmt::to_string(options.warmup),
              "--bucket",
              options.bucket,
              "--first-bucket",
              options.first_bucket,
              "--last-bucket",
              options.last_bucket,
              "--partition",
              options.partition,
              "--codec-min-elements",
              fmt::to_string(options.codec_min_elements),
              "--piece",
              options.piece};
  if (what.servers > 0) {
    words.insert(words.end(), {"--servers", fmt::to_string(what.servers), "--mode",
                               servers::mode_text(what.policy), "--place", options.place, "--use",
                               fmt::to_string(what.policy.use), "--spread", options.spread});
    for (const std::string& slow : options.slow) words.insert(words.end(), {"--slow", slow});
  }
  if (options.steps > 0) words.insert(words.end(), {"--steps", fmt::to_string(options.steps)});
  if (options.compute_ms > 0)
    words.insert(words.end(), {"--compute-ms", fmt::to_string(options.compute_ms)});
  add_launch(words, options.launch);
  return words;
}

Words ddp_command(const StepOptions& options, const emulation::StepCase& what,
                  const workload::LayerProfile& profile, const std::string& program,
                  const std::string& script) {
  Words words = python_command(options.launch, options.python, program);
  words.insert(words.end(), {script, ddp_job(options, what, profile)});
  return words;
}

std::vector<StepRow> compare_steps(const StepOptions& options,
                                   const std::vector<emulation::StepCase>& cases,
                                   const workload::LayerProfile& profile) {
  std::vector<Contender> all = contenders(options, cases, profile);
  for (int round = 0; round < options.rounds; ++round) {
    for (Contender& contender : all) {
      fmt::print(stderr, "# round {} of {}: {}, {}\n", round + 1, options.rounds, contender.system,
                 label_of(contender.what));
      take_turn(contender);
    }
  }
  std::vector<StepRow> rows;
  for (const Contender& contender : all) rows.push_back(median_round(contender.rounds));
  return rows;
}

}  // namespace gradwire::cli
