#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "gradwire/base/file.h"
#include "gradwire/base/units.h"
#include "gradwire/cli/bench/codec_bench.h"
#include "gradwire/cli/command_line.h"
#include "gradwire/cli/commands.h"

namespace gradwire::cli {
namespace {

struct Options {
  std::vector<std::string> codecs;
  std::string size = "64M";
  double seconds = 0.25;
  std::string json;
};

void declare(CLI::App& app, Options& options) {
  app.add_option(
      "codec", options.codecs,
      "NAME or NAME:PARAMETER, may be repeated; default: all\n" + codec::describe_codecs());
  app.add_option("--size", options.size,
                 "bytes of float32 to encode; K, M, G are powers of two; data that fits into a "
                 "cache is faster")
      ->capture_default_str();
  app.add_option("--seconds", options.seconds, "minimum seconds to measure each rate")
      ->check(CLI::Range(0.001, 3600.0))
      ->capture_default_str();
  app.add_option("--json", options.json,
                 "file for the rows as JSON; - prints them in place of the table");
}

/// Returns the codecs of the command line, or else all that can be measured, each with its default
/// parameter.
std::vector<codec::CodecSpec> specs_of(const Options& options) {
  std::vector<codec::CodecSpec> specs;
  for (const std::string& text : options.codecs) {
    specs.push_back(value_or_throw(codec::parse_codec(text)));
    if (specs.back().kind() == codec::CodecKind::automatic)
      value_or_throw(codec::make_codec(specs.back()));
  }
  if (!options.codecs.empty()) return specs;
  for (const codec::CodecEntry& entry : codec::codec_catalogue()) {
    if (entry.kind == codec::CodecKind::automatic) continue;
    specs.push_back(value_or_throw(codec::parse_codec(entry.name)));
  }
  return specs;
}

}  // namespace

int bench_codec_command(int argc, char** argv) {
  Options options;
  CLI::App app(
      "Measures encoding and decoding rates of gradient codecs on one core, and their errors",
      "gradwire bench codec");
  declare(app, options);
  if (const auto status = parse_command_line(app, argc, argv)) return *status;
  const auto specs = read_arguments([&] { return specs_of(options); });
  const auto bytes = read_arguments([&] { return value_or_throw(parse_bytes(options.size)); });
  const std::size_t count = std::max<std::size_t>(1, bytes / sizeof(float));
  const bool prints = options.json != "-";
  if (prints) fmt::print("{}", codec_table_head(count * sizeof(float)));
  const SteadyClock clock;
  std::vector<CodecRow> rows;
  for (const codec::CodecSpec& spec : specs) {
    rows.push_back(measure_codec(spec, count, options.seconds, clock));
    if (!prints) continue;
    fmt::print("{}", codec_table_line(rows.back()));
    std::fflush(stdout);
  }
  if (options.json == "-") fmt::print("{}", to_json(rows));
  if (prints && !options.json.empty()) write_file(options.json, to_json(rows));
  return 0;
}

}  // namespace gradwire::cli
