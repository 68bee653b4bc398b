#include "gradwire/pipeline/pipeline_schedule.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

#include <fmt/format.h>

namespace gradwire::pipeline {
namespace {

constexpr std::string_view kLetters = "FBIW";

std::optional<int> number_in(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

std::optional<Task> task_in(std::string_view cell) {
  const auto letter = cell.find_first_of(kLetters);
  if (letter == std::string_view::npos) return std::nullopt;
  const auto stage = number_in(cell.substr(0, letter));
  const auto micro_batch = number_in(cell.substr(letter + 1));
  if (!stage || !micro_batch) return std::nullopt;
  if (*stage >= kMaxRanks || *micro_batch >= kMaxMicroBatches) return std::nullopt;
  return Task{static_cast<Compute>(kLetters.find(cell[letter])), *stage, *micro_batch};
}

/// Splits at a separator, and drops blanks around the parts.
std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const auto end = std::min(text.find(separator), text.size());
    std::string_view part = text.substr(0, end);
    const auto begin = part.find_first_not_of(" \t\r");
    part = begin == std::string_view::npos ? std::string_view{} : part.substr(begin);
    parts.push_back(part.substr(0, part.find_last_not_of(" \t\r") + 1));
    if (end == text.size()) return parts;
    text.remove_prefix(end + 1);
  }
}

Result<std::vector<Task>> read_line(std::string_view line, std::size_t number) {
  std::vector<Task> tasks;
  for (const std::string_view cell : split(line, ',')) {
    if (cell.empty()) continue;
    const auto task = task_in(cell);
    if (!task) {
      return failure(ErrorKind::invalid_argument,
                     fmt::format("line {}: \"{}\" is not a computation; expected stage (below {}), "
                                 "F, B, I or W, and micro-batch (below {}), as in 2F0",
                                 number, cell, kMaxRanks, kMaxMicroBatches));
    }
    tasks.push_back(*task);
  }
  return tasks;
}

/// Derives what the order implies: which rank has which stage, and the number of micro-batches.
Status complete(PipelineSchedule& schedule) {
  for (Rank rank = 0; rank < schedule.ranks(); ++rank) {
    for (const Task& task : schedule.order[static_cast<std::size_t>(rank)]) {
      const auto stage = static_cast<std::size_t>(task.stage);
      if (stage >= schedule.rank_of.size()) schedule.rank_of.resize(stage + 1, -1);
      schedule.rank_of[stage] = rank;
      schedule.micro_batches = std::max(schedule.micro_batches, task.micro_batch + 1);
      if (task.compute != Compute::forward) schedule.trains = true;
    }
  }
  const auto missing = std::ranges::find(schedule.rank_of, -1);
  if (missing != schedule.rank_of.end()) {
    return failure(ErrorKind::invalid_argument,
                   fmt::format("no rank has stage {}", missing - schedule.rank_of.begin()));
  }
  schedule.edges = chain_of(schedule.stages());
  return {};
}

/// The messages of a task's micro-batch in its direction, of all stages.
std::vector<Message> messages_of(const PipelineSchedule& schedule, const Task& task) {
  std::vector<Message> messages;
  if (task.compute == Compute::backward_weight) return messages;
  const bool forward = task.compute == Compute::forward;
  for (const auto& [from, to] : schedule.edges) {
    messages.push_back({forward ? from : to, forward ? to : from, task.micro_batch});
  }
  return messages;
}

}  // namespace

std::string name_of(const Task& task) {
  return fmt::format("{}{}{}{}", task.stage, kLetters[static_cast<std::size_t>(task.compute)],
                     task.micro_batch, task.delay > 0 ? fmt::format("-{}", task.delay) : "");
}

std::string_view name_of(WeightRule rule) {
  constexpr std::array<std::string_view, 5> kNames{"flush", "stash", "double buffer", "predict",
                                                   "newest"};
  return kNames[static_cast<std::size_t>(rule)];
}

std::vector<Edge> chain_of(int stages) {
  std::vector<Edge> edges;
  for (Stage stage = 1; stage < stages; ++stage) edges.push_back({stage - 1, stage});
  return edges;
}

std::vector<Message> inputs_of(const PipelineSchedule& schedule, const Task& task) {
  std::vector<Message> messages = messages_of(schedule, task);
  std::erase_if(messages, [&](const Message& each) { return each.to != task.stage; });
  return messages;
}

std::vector<Message> outputs_of(const PipelineSchedule& schedule, const Task& task) {
  std::vector<Message> messages = messages_of(schedule, task);
  std::erase_if(messages, [&](const Message& each) { return each.from != task.stage; });
  return messages;
}

PipelineSchedule forwards_of(PipelineSchedule schedule) {
  schedule.trains = false;
  schedule.kept = 0;
  schedule.weights = WeightRule::flush;
  schedule.weight_bounds.clear();
  schedule.sends_in_flight = 2;
  schedule.receives_ahead = 2;
  for (auto& order : schedule.order) {
    std::erase_if(order, [](const Task& task) { return task.compute != Compute::forward; });
  }
  return schedule;
}

int max_delay(const PipelineSchedule& schedule) {
  int max = 0;
  for (const std::vector<Task>& tasks : schedule.order) {
    for (const Task& task : tasks) max = std::max(max, task.delay);
  }
  return max;
}

std::vector<int> kept_by_rank(const PipelineSchedule& schedule) {
  const int steps = max_delay(schedule) + 1;  // The last one has tasks of all steps before.
  std::vector<int> max_kept;
  for (const std::vector<Task>& tasks : schedule.order) {
    int kept = 0;
    int max = 0;
    for (int step = 0; step < steps; ++step) {
      for (const Task& task : tasks) {
        if (task.delay > step) continue;
        if (task.compute == Compute::forward) max = std::max(max, ++kept);
        if (!schedule.trains || task.compute == Compute::backward ||
            task.compute == Compute::backward_weight) {
          --kept;
        }
      }
    }
    max_kept.push_back(max);
  }
  return max_kept;
}

std::string to_csv(const PipelineSchedule& schedule) {
  std::string text;
  for (const std::vector<Task>& tasks : schedule.order) {
    for (std::size_t i = 0; i < tasks.size(); ++i) {
      if (i > 0) text += ',';
      text += name_of(tasks[i]);
    }
    text += '\n';
  }
  return text;
}

Result<std::string> to_torch_csv(const PipelineSchedule& schedule) {
  if (max_delay(schedule) == 0) return to_csv(schedule);
  return failure(
      ErrorKind::invalid_argument,
      fmt::format("PyTorch's CSV has no schedules that never drain, such as {}: choose a "
                  "synchronous one, such as zero_bubble",
                  schedule.name));
}

Result<PipelineSchedule> from_csv(std::string_view text, const std::string& name) {
  PipelineSchedule schedule{.name = name, .trains = false};
  while (!text.empty() && text.back() == '\n') text.remove_suffix(1);
  std::size_t number = 0;
  for (const std::string_view line : split(text, '\n')) {
    GRADWIRE_ASSIGN_OR_RETURN(auto tasks, read_line(line, ++number));
    if (tasks.empty()) {
      return failure(ErrorKind::invalid_argument,
                     fmt::format("line {} has no computations: each line is a rank, and each rank "
                                 "needs a stage",
                                 number));
    }
    schedule.order.push_back(std::move(tasks));
  }
  GRADWIRE_RETURN_IF_ERROR(complete(schedule));
  return schedule;
}

}  // namespace gradwire::pipeline
