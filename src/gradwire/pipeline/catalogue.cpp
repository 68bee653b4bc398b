#include "gradwire/pipeline/catalogue.h"

#include <algorithm>
#include <array>
#include <charconv>

#include <fmt/format.h>

#include "gradwire/base/suggest.h"
#include "gradwire/pipeline/generators/generators.h"

namespace gradwire::pipeline {
namespace {

constexpr std::array<Generator, 10> kGenerators{{
    {"gpipe", "all forwards, then all backwards; keeps every micro-batch", gpipe},
    {"1f1b", "forwards and backwards in turn, with the warm-up that the transfers need",
     one_f_one_b},
    {"interleaved", "1f1b with several stages per rank: shorter bubble, more messages",
     interleaved},
    {"zero_bubble_h1", "1f1b with weight gradients in place of idle time, memory as 1f1b",
     zero_bubble_h1},
    {"zero_bubble", "weight gradients in all idle time, with the memory of --kept micro-batches",
     zero_bubble},
    {"zero_bubble_v", "zero_bubble with the first and the last stage on one rank, memory as 1f1b",
     zero_bubble_v},
    {"auto", "the fastest that a search finds for the costs, with the memory of --kept", searched},
    {"pipedream", "asynchronous: an update after each micro-batch, from older weights", pipedream},
    {"2bw", "asynchronous: an update a step, from weights one update old", two_bw},
    {"forward_only", "for evaluation", forward_only},
}};

/// A name and the number after its colon; 0: none.
struct Spec {
  std::string_view name;
  int number = 0;
};

Result<Spec> parse_spec(std::string_view text) {
  const std::size_t colon = text.find(':');
  if (colon == std::string_view::npos) return Spec{text};
  Spec spec{text.substr(0, colon)};
  const std::string_view digits = text.substr(colon + 1);
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), spec.number);
  if (error == std::errc{} && end == digits.data() + digits.size() && spec.number > 0) return spec;
  return failure(ErrorKind::invalid_argument,
                 fmt::format("pipeline schedule {}: expected a number above 0 after the colon, as "
                             "in zero_bubble:8",
                             text));
}

Status check(const Generator& generator, const PipelineOptions& options) {
  const bool sizes = options.ranks >= 1 && options.ranks <= kMaxRanks &&
                     options.micro_batches >= 1 && options.micro_batches <= kMaxMicroBatches &&
                     options.chunks >= 1 && options.chunks <= kMaxRanks && options.kept >= 0;
  if (!sizes) {
    return failure(
        ErrorKind::invalid_argument,
        fmt::format("{} ranks, {} micro-batches, {} chunks, {} kept: expected 1 or more of each, "
                    "at most {} ranks and chunks, and {} micro-batches",
                    options.ranks, options.micro_batches, options.chunks, options.kept, kMaxRanks,
                    kMaxMicroBatches));
  }
  const auto stages = static_cast<std::size_t>(options.ranks * chunks_of(generator.name, options));
  if (stages > kMaxRanks) {
    return failure(ErrorKind::invalid_argument,
                   fmt::format("{} has {} stages, {} are possible: take fewer ranks or chunks",
                               generator.name, stages, kMaxRanks));
  }
  const std::size_t costs = options.costs.stages.size(), transfers = options.costs.transfers.size();
  const bool fits = (costs == 0 || costs == stages) && (transfers == 0 || transfers + 1 == stages);
  if (fits) return {};
  return failure(ErrorKind::invalid_argument,
                 fmt::format("{} has {} stages, but there are costs of {} and transfers of {}: "
                             "expected those of each stage, and between each and the next",
                             generator.name, stages, costs, transfers));
}

}  // namespace

std::span<const Generator> generators() {
  return kGenerators;
}

Result<PipelineSchedule> make_pipeline(std::string_view text, PipelineOptions options) {
  GRADWIRE_ASSIGN_OR_RETURN(const Spec spec, parse_spec(text));
  const auto found = std::ranges::find(kGenerators, spec.name, &Generator::name);
  if (found == kGenerators.end()) {
    std::vector<std::string_view> known;
    for (const Generator& each : kGenerators) known.push_back(each.name);
    return failure(ErrorKind::invalid_argument,
                   unknown_name("pipeline schedule", spec.name, known));
  }
  if (spec.number > 0) (found->make == interleaved ? options.chunks : options.kept) = spec.number;
  GRADWIRE_RETURN_IF_ERROR(check(*found, options));
  PipelineSchedule schedule = found->make(options);
  schedule.name = text;
  return schedule;
}

int chunks_of(std::string_view text, const PipelineOptions& options) {
  const auto spec = parse_spec(text);
  if (!spec) return 1;
  if (spec->name == "zero_bubble_v") return 2;
  if (spec->name != "interleaved") return 1;
  return spec->number > 0 ? spec->number : options.chunks;
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
