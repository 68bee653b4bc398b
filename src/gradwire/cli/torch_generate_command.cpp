#include <cstdio>
#include <string>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "gradwire/base/file.h"
#include "gradwire/cli/command_line.h"
#include "gradwire/cli/commands.h"
#include "gradwire/recipe/generate.h"

namespace gradwire::cli {
namespace {

using Json = nlohmann::ordered_json;

struct GenerateArguments {
  std::string model;
  recipe::GenerateOptions options;
  std::string json;
};

void declare(CLI::App& app, GenerateArguments& given) {
  app.add_option("model", given.model, "file that gradwire train wrote: model.safetensors")
      ->required();
  app.add_option("--prompt", given.options.prompt, "text to continue; by default a new line");
  app.add_option("--length", given.options.length, "characters to write")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1'000'000'000}))
      ->capture_default_str();
  app.add_option("--temperature", given.options.temperature,
                 "below 1 the likely characters become likelier; 0: always the likeliest")
      ->check(CLI::Range(0.0, 1000.0))
      ->capture_default_str();
  app.add_option("--seed", given.options.seed, "the same seed draws the same text")
      ->capture_default_str();
  app.add_option("--json", given.json, "file for prompt and text as JSON; -: standard output");
}

}  // namespace

int generate_command(int argc, char** argv) {
  GenerateArguments given;
  CLI::App app("Writes text with a transformer or gpt that gradwire train has trained",
               "gradwire generate");
  declare(app, given);
  if (const auto status = parse_command_line(app, argc, argv)) return *status;
  const bool shows = given.json != "-";
  std::string text;
  if (shows) fmt::print("{}", given.options.prompt);
  recipe::generate(given.model, given.options, [&](char next) {
    text += next;
    if (!shows) return;
    std::putchar(next);
    std::fflush(stdout);
  });
  if (shows) fmt::print("\n");
  if (given.json.empty()) return 0;
  const Json json{{"model", given.model},
                  {"prompt", given.options.prompt},
                  {"text", text},
                  {"temperature", given.options.temperature},
                  {"seed", given.options.seed}};
  const std::string whole = json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
  if (!shows) {
    fmt::print("{}", whole);
  } else {
    write_file(given.json, whole);
  }
  return 0;
}

}  // namespace gradwire::cli
