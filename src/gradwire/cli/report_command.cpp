#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "gradwire/base/file.h"
#include "gradwire/cli/command_line.h"
#include "gradwire/cli/commands.h"
#include "gradwire/report/report_page.h"

namespace gradwire::cli {
namespace {

struct ReportOptions {
  std::vector<std::string> inputs;
  std::string output = "report.html";
  std::string title = "gradwire report";
};

void declare_options(CLI::App& app, ReportOptions& options) {
  app.add_option("runs", options.inputs,
                 "output folders of gradwire train and gradwire federate serve, or JSON files of "
                 "gradwire train, gradwire bench step and gradwire federate simulate --json; "
                 "NAME=PATH gives one a name")
      ->required();
  app.add_option("-o,--output", options.output, "file for the page")->capture_default_str();
  app.add_option("--title", options.title, "heading of the page")->capture_default_str();
}

std::string counted(std::size_t count, const char* what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

}  // namespace

int report_command(int argc, char** argv) {
  ReportOptions options;
  CLI::App app("Renders training runs, federated ones too, as one self-contained HTML page",
               "gradwire report");
  declare_options(app, options);
  if (const auto status = parse_command_line(app, argc, argv)) return *status;
  const auto inputs = read_arguments([&] { return report::read_report_inputs(options.inputs); });
  const auto page = value_or_throw(report::report_page(inputs, options.title));
  write_file(options.output, page);
  fmt::print("{}: {}, {}\n", options.output,
             counted(inputs.runs.size() + inputs.federated.size(), "run"),
             counted(inputs.ladders.size(), "ladder"));
  return 0;
}

}  // namespace gradwire::cli
