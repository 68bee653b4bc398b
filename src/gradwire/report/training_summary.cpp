#include "gradwire/report/training_summary.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numbers>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "gradwire/base/statistics.h"
#include "gradwire/base/units.h"
#include "gradwire/report/progress.h"

namespace gradwire::report {
namespace {

std::string line(const std::string& name, const std::string& value) {
  return fmt::format("  {:<20} {}\n", name, value);
}

std::string bytes_text(double bytes) {
  return format_bytes(static_cast<std::size_t>(bytes));
}

std::string traffic(const TrainingSummary& s) {
  const double textbook = textbook_all_reduce_bytes(s.ranks, s.gradient_bytes);
  const auto formula = fmt::format("2(P-1)G/P = {} for P = {}, G = {}", bytes_text(textbook),
                                   s.ranks, bytes_text(s.gradient_bytes));
  if (s.sent_bytes < 0) return "not counted by this backend; " + formula;
  if (textbook <= 0) return bytes_text(s.sent_bytes);
  return fmt::format("{} a step, {:.3f} of the textbook's {}", bytes_text(s.sent_bytes),
                     s.sent_bytes / textbook, formula);
}

std::string staleness_text(const StalenessSummary& s) {
  return fmt::format(
      "mean {:.2f}, median {}, 99th percentile {}, maximum {} updates; learning rate "
      "x {:.3f}; {:.1f} % of the gradients late; servers computed {:.0f} % of the time",
      s.mean, s.p50, s.p99, s.max, s.rate, 100 * s.late, 100 * s.busy);
}

std::string lost_text(const StalenessSummary& s) {
  return fmt::format(
      "{} replaced by {} mirror{}; {} updates and {} gradients without an answer were lost",
      s.lost_servers, s.lost_servers == 1 ? "its" : "their", s.lost_servers == 1 ? "" : "s",
      s.lost_updates, s.lost_gradients);
}

/// "3.20 of worker 2 (maximum 9)": the part with the largest mean.
std::string stalest_text(const char* what, const std::vector<StalenessPart>& parts) {
  const auto most = std::ranges::max_element(parts, {}, &StalenessPart::mean);
  return fmt::format("{:.2f} of {} {} (maximum {})", most->mean, what, most - parts.begin(),
                     most->max);
}

std::string stalest_text(const StalenessSummary& s) {
  std::vector<std::string> parts;
  if (!s.by_worker.empty()) parts.push_back(stalest_text("worker", s.by_worker));
  if (!s.by_unit.empty()) parts.push_back(stalest_text("unit", s.by_unit));
  return fmt::format("mean {}", fmt::join(parts, ", "));
}

std::string prediction_text(const StalenessPrediction& s) {
  return fmt::format(
      "mean {:.2f}, 99th percentile {} updates, {:.1f} % late: simulated with the measured compute",
      s.mean, s.p99, 100 * s.late);
}

std::string staleness_lines(const StalenessSummary& s) {
  std::string text = line("staleness", staleness_text(s));
  const bool has_parts = s.by_worker.size() + s.by_unit.size() > 0;
  if (s.max > 0 && has_parts) text += line("most stale", stalest_text(s));
  if (s.predicted) text += line("predicted staleness", prediction_text(*s.predicted));
  if (s.lost_servers > 0) text += line("lost servers", lost_text(s));
  if (!s.advice.empty()) text += line("advice", s.advice);
  return text;
}

std::string hogwild_text(const HogwildSummary& s) {
  const auto updates = static_cast<double>(s.updates);
  return fmt::format("about {:.0f} of {:.4g} by {} threads ({:.2g} %): {} in {} samples",
                     s.lost_updates(), updates, s.threads,
                     updates > 0 ? 100 * s.lost_updates() / updates : 0, s.lost, s.sampled);
}

std::string rows_text(const RowsSummary& s) {
  return fmt::format(
      "{} made, {} on servers; staleness mean {:.2f}, maximum {} steps; at most {} of {} permits",
      s.made, bytes_text(static_cast<double>(s.bytes)), s.mean_staleness, s.max_staleness,
      s.max_permits, s.permits);
}

std::string steps_text(const TrainingSummary& s) {
  std::string text =
      line("throughput", throughput_text(s.images_per_second, s.samples, s.characters_per_sample));
  text += line("compute T_s", fmt::format("{:.2f} ms a step (median)", 1e3 * s.compute_seconds));
  text += line(
      "communication T_c",
      fmt::format("{:.2f} ms a step not hidden behind compute (median)", 1e3 * s.exposed_seconds));
  text += line("waiting for data", fmt::format("{:.2f} ms a step (median)", 1e3 * s.data_seconds));
  text += line("scaling efficiency",
               fmt::format("{:.1f} % = T_s / (T_s + T_c)",
                           100 * scaling_efficiency(s.compute_seconds, s.exposed_seconds)));
  text += line("sent by each rank", traffic(s));
  if (!s.codec.empty()) text += line("codec", s.codec);
  if (s.hogwild) text += line("lost updates", hogwild_text(*s.hogwild));
  if (s.staleness) text += staleness_lines(*s.staleness);
  if (s.rows) text += line("embedding rows", rows_text(*s.rows));
  if (s.memory.bytes > 0) {
    text += line("tensors' memory", fmt::format("at most {} at once on a rank",
                                                bytes_text(static_cast<double>(s.memory.bytes))));
  }
  return text;
}

/// The perplexity of a character; the loss is the mean negative logarithm of its probability.
std::string perplexity_text(double loss) {
  return fmt::format(", perplexity {:.2f}, {:.3f} bits a character", std::exp(loss),
                     loss / std::numbers::ln2);
}

}  // namespace

double HogwildSummary::lost_updates() const {
  if (sampled == 0) return 0;
  return static_cast<double>(updates) * static_cast<double>(lost) / static_cast<double>(sampled);
}

std::string throughput_text(double samples_per_second, const std::string& samples,
                            std::int64_t characters_per_sample) {
  if (characters_per_sample == 0) return fmt::format("{:.0f} {}/s", samples_per_second, samples);
  return fmt::format("{:.0f} characters/s",
                     samples_per_second * static_cast<double>(characters_per_sample));
}

std::string test_text(const TrainingSummary& s) {
  const bool is_text = s.characters_per_sample > 0;
  return fmt::format("{:.2f} % of {} {} (loss {:.4f}{})", 100 * s.test_accuracy, s.test_images,
                     is_text ? "characters" : s.samples, s.test_loss,
                     is_text ? perplexity_text(s.test_loss) : "");
}

std::string format_summary(const TrainingSummary& s) {
  const auto ranks = fmt::format("{} rank{}", s.ranks, s.ranks == 1 ? "" : "s");
  std::string text = s.steps == 0 ? fmt::format("Nothing was left to train on {}\n", ranks)
                                  : fmt::format("Trained on {}: {} steps in {}\n", ranks, s.steps,
                                                format_clock(s.training));
  text += line("test accuracy", test_text(s));
  if (s.steps > 0) text += steps_text(s);
  if (!s.checkpoint.empty()) text += line("checkpoint", s.checkpoint);
  return text;
}

namespace {

nlohmann::json by_category(const MemoryBytes& bytes) {
  auto json = nlohmann::json::object();
  for (std::size_t i = 0; i < kMemoryCategories; ++i) {
    json[std::string(kMemoryCategoryNames[i])] = bytes[i];
  }
  return json;
}

nlohmann::json columns_of(const std::vector<StalenessPart>& parts) {
  nlohmann::json mean = nlohmann::json::array(), max = nlohmann::json::array();
  for (const StalenessPart& part : parts) {
    mean.push_back(part.mean);
    max.push_back(part.max);
  }
  return {{"mean", mean}, {"max", max}};
}

nlohmann::json summary_of_staleness(const StalenessSummary& s) {
  nlohmann::json json{{"mean", s.mean}, {"p50", s.p50},   {"p99", s.p99},   {"max", s.max},
                      {"rate", s.rate}, {"late", s.late}, {"busy", s.busy}, {"version", s.version}};
  if (!s.by_worker.empty()) json["by_worker"] = columns_of(s.by_worker);
  if (!s.by_unit.empty()) json["by_unit"] = columns_of(s.by_unit);
  if (!s.advice.empty()) json["advice"] = s.advice;
  if (s.lost_servers > 0) {
    json["lost_servers"] = s.lost_servers;
    json["lost_updates"] = s.lost_updates;
    json["lost_gradients"] = s.lost_gradients;
  }
  if (s.predicted) {
    json["predicted"] = {
        {"mean", s.predicted->mean}, {"p99", s.predicted->p99}, {"late", s.predicted->late}};
  }
  return json;
}

}  // namespace

std::string summary_json(const TrainingSummary& s) {
  nlohmann::json json{{"ranks", s.ranks},
                      {"steps", s.steps},
                      {"test_accuracy", s.test_accuracy},
                      {"test_loss", s.test_loss},
                      {"test_images", s.test_images},
                      {"training_s", std::chrono::duration<double>(s.training).count()},
                      {"images_per_second", s.images_per_second},
                      {"compute_ms", 1e3 * s.compute_seconds},
                      {"exposed_ms", 1e3 * s.exposed_seconds},
                      {"data_ms", 1e3 * s.data_seconds},
                      {"gradient_bytes_per_step", s.gradient_bytes},
                      {"sent_bytes_per_step", s.sent_bytes},
                      {"checkpoint", s.checkpoint}};
  if (s.characters_per_sample > 0) {
    json["characters_per_sample"] = s.characters_per_sample;
    json["characters_per_second"] =
        s.images_per_second * static_cast<double>(s.characters_per_sample);
    json["test_perplexity"] = std::exp(s.test_loss);
  }
  if (!s.codec.empty()) json["codec"] = s.codec;
  if (s.staleness) {
    json["staleness"] = summary_of_staleness(*s.staleness);
  }
  if (s.hogwild) {
    json["hogwild"] = {{"threads", s.hogwild->threads},
                       {"updates", s.hogwild->updates},
                       {"sampled", s.hogwild->sampled},
                       {"lost", s.hogwild->lost},
                       {"lost_updates", s.hogwild->lost_updates()}};
  }
  if (s.rows) {
    json["rows"] = {{"made", s.rows->made},
                    {"bytes", s.rows->bytes},
                    {"staleness_mean", s.rows->mean_staleness},
                    {"staleness_max", s.rows->max_staleness},
                    {"permits_max", s.rows->max_permits},
                    {"permits", s.rows->permits}};
  }
  if (s.memory.resident > 0) json["resident_peak_bytes"] = s.memory.resident;
  if (s.memory.bytes > 0) {
    json["memory"] = {{"peak_bytes", s.memory.bytes},
                      {"at_peak", by_category(s.memory.at_peak)},
                      {"most", by_category(s.memory.max)}};
  }
  return json.dump(1) + "\n";
}

}  // namespace gradwire::report
