#include "gradwire/report/report_inputs.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "gradwire/base/file.h"

namespace gradwire::report {
namespace {

namespace fs = std::filesystem;

constexpr const char* kRemedy =
    "give an output folder of gradwire train or gradwire federate serve, its run.json or "
    "result.json, or the JSON of gradwire train --json, gradwire bench step --json or gradwire "
    "federate simulate --json";

/// Files that commands write into their output folders.
constexpr std::array kFilesOfFolders{RunRecord::kFileName, FederatedRecord::kFileName};

[[noreturn]] void refuse(const fs::path& path, const std::string& message) {
  throw Exception(ErrorKind::invalid_argument, fmt::format("{}: {}", path.string(), message));
}

template <class T>
T value_of(Result<T> result, const fs::path& path) {
  if (!result) refuse(path, result.error().message);
  return std::move(*result);
}

/// Splits NAME=PATH; the name is "" if the argument is a path.
std::pair<std::string, fs::path> split(const std::string& argument) {
  const auto equals = argument.find('=');
  if (equals == std::string::npos || fs::exists(argument)) return {"", argument};
  return {argument.substr(0, equals), argument.substr(equals + 1)};
}

fs::path file_of(const fs::path& path) {
  if (!fs::exists(path)) refuse(path, fmt::format("there is no such file or folder; {}", kRemedy));
  if (!fs::is_directory(path)) return path;
  for (const char* name : kFilesOfFolders)
    if (fs::exists(path / name)) return path / name;
  refuse(path, fmt::format("the folder has no {}, which gradwire train and gradwire federate serve "
                           "write at their end; {}",
                           fmt::join(kFilesOfFolders, " and no "), kRemedy));
}

std::string content_of(const fs::path& file) {
  return value_or_throw(read_file(file));
}

/// Default name: ddp-x4 for "out/ddp-x4/run.json", ladder for "ladder.json".
std::string usual_name(const fs::path& file) {
  if (std::ranges::find(kFilesOfFolders, file.filename()) == kFilesOfFolders.end())
    return file.stem().string();
  return fs::absolute(file).lexically_normal().parent_path().filename().string();
}

RunRecord record_of(const nlohmann::json& json, const std::string& text, const fs::path& file) {
  if (json.contains("format")) return value_of(parse_run_record(text), file);
  RunRecord record;
  record.summary = value_of(parse_summary(text), file);
  return record;
}

std::string unique(const std::string& name, const ReportInputs& inputs) {
  const auto taken = [&inputs](const std::string& candidate) {
    return std::ranges::count(inputs.runs, candidate,
                              [](const ReportRun& run) { return run.record.name; }) > 0 ||
           std::ranges::count(inputs.federated, candidate, &ReportFederated::name) > 0;
  };
  std::string candidate = name;
  for (int i = 2; taken(candidate); ++i) candidate = fmt::format("{} ({})", name, i);
  return candidate;
}

void add(const std::string& argument, ReportInputs& inputs) {
  const auto [name, path] = split(argument);
  const auto file = file_of(path);
  const auto text = content_of(file);
  const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) refuse(file, fmt::format("it is not JSON; {}", kRemedy));
  if (json.contains("rows")) {
    inputs.ladders.push_back({.name = name.empty() ? usual_name(file) : name,
                              .source = file.string(),
                              .rows = value_of(parse_ladder(text), file)});
    return;
  }
  if (json.contains("fairness")) {
    inputs.federated.push_back({.name = unique(name.empty() ? usual_name(file) : name, inputs),
                                .source = file.string(),
                                .record = value_of(parse_federated(text), file)});
    return;
  }
  if (json.contains("sweep")) {
    refuse(file,
           "it is a sweep of gradwire federate simulate, without the rounds: simulate settings to "
           "be shown one by one, with --set in place of --sweep");
  }
  if (!json.contains("format") && !json.contains("images_per_second")) {
    refuse(file, fmt::format("it is neither a run nor a ladder: it has none of the keys format, "
                             "rows, fairness and images_per_second; {}",
                             kRemedy));
  }
  ReportRun run{.record = record_of(json, text, file), .source = file.string()};
  if (!name.empty()) run.record.name = name;
  if (run.record.name.empty()) run.record.name = usual_name(file);
  run.record.name = unique(run.record.name, inputs);
  inputs.runs.push_back(std::move(run));
}

}  // namespace

ReportInputs read_report_inputs(const std::vector<std::string>& arguments) {
  ReportInputs inputs;
  for (const auto& argument : arguments) add(argument, inputs);
  return inputs;
}

}  // namespace gradwire::report
