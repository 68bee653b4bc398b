// One process of many short runs: option_rank FOLDER. FOLDER/runs.json is a list of configurations;
// rank 0 writes FOLDER/results.json, what can be seen of each.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "gradwire/recipe/dry_run.h"
#include "gradwire/recipe/trainer.h"
#include "gradwire/torch/init.h"
#include "tests/support/temporary_folder.h"
#include "tests/train/programs/ranks.h"

namespace {

using gradwire::test::content_of;
using nlohmann::ordered_json;
namespace recipe = gradwire::recipe;

/// The beginnings of forwards, backwards and communication, in order. When a rank waits, and when
/// its optimizers step, depends on the network.
std::string order_of(const gradwire::TraceRecorder& trace) {
  gradwire::TraceLog log = trace.log();
  std::erase_if(log.spans, [](const auto& s) {
    return s.kind != gradwire::TraceKind::forward && s.kind != gradwire::TraceKind::backward &&
           s.kind != gradwire::TraceKind::communication;
  });
  std::ranges::stable_sort(log.spans, {}, &gradwire::TraceSpan::begin);
  std::string text;
  for (const auto& span : log.spans) {
    const bool sends = span.kind == gradwire::TraceKind::communication;
    text += fmt::format("{} {}; ", log.names[span.name], sends ? span.bytes : 0);
  }
  return text;
}

ordered_json files_in(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    names.push_back(std::filesystem::relative(entry.path(), folder));
  }
  std::ranges::sort(names);
  return names;
}

ordered_json observed(const recipe::TrainConfig& config, const gradwire::ProcessGroup& group,
                      const std::filesystem::path& output) {
  const gradwire::SteadyClock clock;
  gradwire::TraceRecorder trace(clock);
  const auto result =
      recipe::train(config, {.group = group, .clock = &clock, .output = output, .trace = &trace});
  std::vector<double> losses;
  for (const auto& step : result.record.steps) losses.push_back(step.loss);
  std::vector<double> tests;
  for (const auto& test : result.record.tests) tests.push_back(test.loss);
  if (group->getRank() > 0) return {};
  const auto model = std::hash<std::string>()(content_of(output / config.checkpoint));
  return {{"model", model},
          {"losses", losses},
          {"tests", tests},
          {"sent", result.summary.sent_bytes},
          {"files", files_in(output)},
          {"order", order_of(trace)}};
}

}  // namespace

int gradwire::test::option_rank(int argc, char** argv) {
  if (argc != 2) return 2;
  at::set_num_threads(1);
  const std::filesystem::path folder = argv[1];
  const auto group = gradwire::init();
  const auto runs = ordered_json::parse(content_of(folder / "runs.json"));
  auto results = ordered_json::array();
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const auto output = folder / std::to_string(i);
    std::filesystem::create_directories(output);
    std::optional<recipe::TrainConfig> config;
    try {
      config = recipe::parse_train_config(runs[i]);
      recipe::dry_run(*config, group->getSize());
    } catch (const gradwire::Exception& e) {
      results.push_back({{"refused", e.what()}});
      continue;
    }
    try {
      results.push_back(observed(*config, group, output));
    } catch (const std::exception& e) {
      fmt::print("{}: {}\n", runs[i].dump(), e.what());
      return 1;
    }
  }
  if (group->getRank() == 0) std::ofstream(folder / "results.json") << results.dump(1);
  group->barrier()->wait();
  return 0;
}
