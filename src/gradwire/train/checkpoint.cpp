#include "gradwire/train/checkpoint.h"

#include <charconv>
#include <functional>

#include <fmt/format.h>

#include "gradwire/base/error.h"
#include "gradwire/train/safetensors.h"

namespace gradwire {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse(const std::string& message) {
  throw Exception(ErrorKind::invalid_argument, message);
}

fs::path file_of_rank(const fs::path& model, std::int64_t step, int rank) {
  const auto name = fmt::format("{}.step{}.rank{}.safetensors", model.stem().string(), step, rank);
  return model.parent_path() / name;
}

void load_rank(const fs::path& path, const RunState& run) {
  const auto file = load_safetensors(path);
  const auto ranks = file.metadata.find("ranks");
  if (ranks == file.metadata.end() || ranks->second != std::to_string(run.parallel.size())) {
    refuse(fmt::format("{} is of a run of {} ranks; go on with as many", path.string(),
                       ranks == file.metadata.end() ? "?" : ranks->second));
  }
  load_rank_tensors(run, file.tensors, path);
}

/// The step that a model's file names.
std::int64_t step_of(const SafetensorsFile& file, const fs::path& path) {
  const auto found = file.metadata.find("step");
  const auto text = found == file.metadata.end() ? "" : found->second;
  std::int64_t step = -1;
  std::from_chars(text.data(), text.data() + text.size(), step);
  if (step >= 0) return step;
  refuse(
      fmt::format("{} is a model alone, and no run can go on from it: write checkpoints with "
                  "checkpoint_every",
                  path.string()));
}

/// Does `act` here, and throws on all ranks what it threw on any; returns what it returned on rank
/// 0.
std::string together(c10d::ProcessGroup& group, const std::function<std::string()>& act) {
  std::string mine;
  try {
    mine = "+" + act();
  } catch (const std::exception& error) {
    mine = fmt::format("rank {}: {}", group.getRank(), error.what());
  }
  const auto texts =
      group.getSize() > 1 ? gather_texts(group, mine) : std::vector<std::string>{mine};
  for (const auto& text : texts) {
    if (!text.starts_with("+")) refuse(text);
  }
  return texts[0].substr(1);
}

}  // namespace

void save_model(const fs::path& path, const RunState& run) {
  if (run.parallel.rank() != 0) return;
  save_safetensors(path, model_tensors(run.module), {{"format", "pt"}, {"model", run.model}});
}

void save_checkpoint(const fs::path& path, const RunState& run, std::int64_t step,
                     std::int64_t previous) {
  run.parallel.finish();
  auto& group = *run.parallel.group();
  const int rank = group.getRank();
  together(group, [&] {
    save_safetensors(file_of_rank(path, step, rank), rank_tensors(run),
                     {{"ranks", std::to_string(group.getSize())}});
    return "";
  });
  together(group, [&] {
    if (rank == 0) {
      save_safetensors(path, model_tensors(run.module),
                       {{"format", "pt"}, {"model", run.model}, {"step", std::to_string(step)}});
    }
    return "";
  });
  if (previous >= 0 && previous != step) fs::remove(file_of_rank(path, previous, rank));
}

std::int64_t load_checkpoint(const fs::path& path, const RunState& run) {
  run.parallel.finish();
  auto& group = *run.parallel.group();
  const auto tensors = model_tensors(run.module);
  const auto text = together(group, [&]() -> std::string {
    if (group.getRank() != 0) return "";
    const auto file = load_safetensors(path);
    copy_into(tensors, file.tensors, "", path);
    return std::to_string(step_of(file, path));
  });
  const auto step = std::stoll(text);
  if (group.getSize() > 1) broadcast_tensors(group, tensors);
  together(group, [&] {
    load_rank(file_of_rank(path, step, group.getRank()), run);
    return "";
  });
  return step;
}

}  // namespace gradwire
