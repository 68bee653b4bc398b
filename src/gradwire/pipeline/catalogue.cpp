#include "gradwire/pipeline/catalogue.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "gradwire/base/suggest.h"
#include "gradwire/pipeline/generators/generators.h"

namespace gradwire::pipeline {
namespace {

constexpr std::array<Generator, 6> kGenerators{{
    {"gpipe", "all forwards, then all backwards; keeps every micro-batch", gpipe},
    {"1f1b", "forwards and backwards in turn, with the warm-up that the transfers need",
     one_f_one_b},
    {"interleaved", "1f1b with several stages per rank: shorter bubble, more messages",
     interleaved},
    {"zero_bubble_h1", "1f1b with weight gradients in place of idle time, memory as 1f1b",
     zero_bubble_h1},
    {"zero_bubble", "weight gradients in all idle time, with the memory of --kept micro-batches",
     zero_bubble},
    {"forward_only", "for evaluation", forward_only},
}};

Status check(const Generator& generator, const PipelineOptions& options) {
  const bool sizes = options.ranks >= 1 && options.ranks <= kMaxRanks &&
                     options.micro_batches >= 1 && options.chunks >= 1 && options.kept >= 0;
  if (!sizes) {
    return failure(
        ErrorKind::invalid_argument,
        fmt::format("{} ranks, {} micro-batches, {} chunks, {} kept: expected 1 or more "
                    "of each, at most {} ranks",
                    options.ranks, options.micro_batches, options.chunks, options.kept, kMaxRanks));
  }
  if (generator.make == interleaved && options.micro_batches % options.ranks != 0) {
    return failure(ErrorKind::invalid_argument,
                   fmt::format("interleaved: {} micro-batches are not a multiple of {} ranks; "
                               "choose such a number, or 1f1b",
                               options.micro_batches, options.ranks));
  }
  const auto stages = static_cast<std::size_t>(
      options.ranks * (generator.make == interleaved ? options.chunks : 1));
  if (options.costs.stages.empty() || options.costs.stages.size() == stages) return {};
  return failure(ErrorKind::invalid_argument,
                 fmt::format("{} has {} stages, but there are costs of {}", generator.name, stages,
                             options.costs.stages.size()));
}

}  // namespace

std::span<const Generator> generators() {
  return kGenerators;
}

Result<PipelineSchedule> make_pipeline(std::string_view name, PipelineOptions options) {
  const auto found = std::ranges::find(kGenerators, name, &Generator::name);
  if (found == kGenerators.end()) {
    std::vector<std::string_view> known;
    for (const Generator& each : kGenerators) known.push_back(each.name);
    return failure(ErrorKind::invalid_argument, unknown_name("pipeline schedule", name, known));
  }
  GRADWIRE_RETURN_IF_ERROR(check(*found, options));
  if (options.kept == 0) options.kept = 2 * options.ranks;
  PipelineSchedule schedule = found->make(options);
  schedule.name = name;
  return schedule;
}

PipelineSchedule without_order(const PipelineOptions& options, int chunks) {
  PipelineSchedule schedule{.micro_batches = options.micro_batches};
  for (Stage stage = 0; stage < options.ranks * chunks; ++stage) {
    schedule.rank_of.push_back(stage % options.ranks);
  }
  schedule.edges = chain_of(schedule.stages());
  schedule.order.resize(static_cast<std::size_t>(options.ranks));
  return schedule;
}

}  // namespace gradwire::pipeline
