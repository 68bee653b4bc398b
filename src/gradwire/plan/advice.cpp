#include <algorithm>
#include <array>
#include <functional>
#include <numeric>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "gradwire/base/error.h"
#include "gradwire/base/units.h"
#include "gradwire/plan/plan.h"

namespace gradwire::plan {
namespace {

constexpr double kMinGain = 0.001;  ///< In samples per second, relative.
constexpr int kMaxCards = 4;
/// A host below this share of the next slower one is named.
constexpr double kSlowHost = 0.6;

struct Change {
  std::string name, note;
  PlanInput input;
  bool mends = false;
};

class CandidateChanges {
 public:
  explicit CandidateChanges(const PlanInput& input) : input_(input) {}

  std::vector<Change> all() {
    slow_host();
    codecs();
    overlaps();
    batches();
    local_steps();
    networks();
    strategies();
    memory();
    return std::move(changes_);
  }

 private:
  PlanInput& add(const std::string& name, const std::string& note = {}) {
    changes_.push_back({name, note, input_, false});
    return changes_.back().input;
  }

  /// A node whose links are much slower than those of the others: all wait for it.
  void slow_host() {
    const auto& measured = input_.network.measured;
    if (!measured || measured->hosts() < 3) return;
    const auto rate = [&](int host) { return measured->host(host).port().bytes_per_second; };
    std::vector<int> hosts(static_cast<std::size_t>(measured->hosts()));
    std::iota(hosts.begin(), hosts.end(), 0);
    std::ranges::stable_sort(hosts, {}, rate);
    const double slowest = rate(hosts[0]), others = rate(hosts[1]);
    if (slowest > kSlowHost * others) return;
    const std::string name = measured->host(hosts[0]).name;
    PlanInput& changed =
        add(fmt::format("leave out {}, or repair its link ({} where others have {})", name,
                        format_rate(slowest), format_rate(others)),
            "with the link repaired");
    changed.network.bytes_per_second *= others / slowest;
    changed.measured.communication *= slowest / others;
    changed.network.measured.reset();
    changes_.back().mends = true;
  }

  void codecs() {
    const Strategy& s = input_.strategy;
    const bool refused =
        (s.zero_stage > 0 && s.compute == ComputeType::mixed) || !input_.network.takes_codecs();
    if (refused || s.servers > 0 || s.data() < 2) return;
    const double now = wire_bytes(s.codec, s.data()).contribution;
    for (const char* codec : {"bf16", "int8", "int4"}) {
      if (wire_bytes(codec, s.data()).contribution > 0.9 * now) continue;
      const bool lossy = std::string_view(codec) != "bf16";
      add(fmt::format("codec {}", codec),
          lossy ? "gradients lose precision; error feedback corrects it in later steps" : "")
          .strategy.codec = codec;
    }
  }

  void overlaps() {
    const Strategy& s = input_.strategy;
    if (s.overlap == step::Overlap::none)
      add("overlap with backward").strategy.overlap = step::Overlap::backward;
    if (s.overlap != step::Overlap::full)
      add("overlap with backward and the next forward").strategy.overlap = step::Overlap::full;
  }

  void batches() {
    const Strategy& s = input_.strategy;
    constexpr const char* larger = "the global batch doubles";
    add(fmt::format("accumulate {} passes", 2 * s.accumulate), larger).strategy.accumulate =
        2 * s.accumulate;
    PlanInput& twice = add(fmt::format("batch {:g}", 2 * s.batch), larger);
    twice.strategy.batch = 2 * s.batch;
    // Measured times are those of the original batch.
    twice.measured.step *= 2;
    twice.model.recorded_seconds *= 2;
  }

  void local_steps() {
    const Strategy& s = input_.strategy;
    if (s.zero_stage > 0) return;
    if (s.local_steps == 1) {
      constexpr const char* apart = "ranks drift apart between averages";
      add("8 local steps", apart).strategy.local_steps = 8;
      if (s.overlap != step::Overlap::full) return;  // Try first what costs no accuracy.
      Strategy& hidden =
          add("8 local steps, averages of half a model overlapped with 3 of them", apart).strategy;
      hidden.local_steps = 8;
      hidden.fragments = 2;
      hidden.overlap_steps = 3;
    } else if (const int max_steps = s.local_steps / s.fragments - 1; s.overlap_steps < max_steps) {
      add(fmt::format("averages overlapped with {} steps", max_steps),
          "they are that many steps old")
          .strategy.overlap_steps = max_steps;
    }
  }

  void networks() {
    const int cards = input_.network.cards;
    constexpr std::array<const char*, 3> numbers{"second", "third", "fourth"};
    const bool by_bus = input_.network.by_bus_bandwidth;  // It is that of all cards.
    if (cards < kMaxCards && !by_bus)
      ++add(fmt::format("{} NIC", numbers[static_cast<std::size_t>(cards - 1)])).network.cards;
    PlanInput& faster = add(fmt::format("{} of {}", by_bus ? "bus bandwidth" : "network",
                                        format_rate(2.5 * input_.network.bytes_per_second)));
    faster.network.bytes_per_second *= 2.5;
    faster.measured.communication /= 2.5;
    faster.network.measured.reset();
    if (input_.storage_bytes_per_second > 0)
      add("storage twice as fast").storage_bytes_per_second *= 2;
  }

  void strategies() {
    const Strategy& s = input_.strategy;
    if (s.algorithm != "auto") add("the fastest algorithm").strategy.algorithm = "auto";
    if (s.servers > 0) {
      if (!s.beside_workers || 2 * s.servers <= s.nodes)
        add(fmt::format("{} parameter servers", 2 * s.servers)).strategy.servers = 2 * s.servers;
      add("all-reduce in place of parameter servers").strategy.servers = 0;
    }
    if (s.pipeline > 1)
      add(fmt::format("{} micro-batches", 2 * s.micro_batches)).strategy.micro_batches =
          2 * s.micro_batches;
  }

  /// Changes for models that do not fit.
  void memory() {
    const Strategy& s = input_.strategy;
    for (int stage = s.zero_stage + 1; stage <= 3 && s.servers == 0; ++stage) {
      PlanInput& changed = add(fmt::format("ZeRO stage {}", stage));
      changed.strategy.zero_stage = stage;
      if (s.compute == ComputeType::mixed) changed.strategy.codec = "none";
      changed.strategy.local_steps = changed.strategy.fragments = 1;
      changed.strategy.overlap_steps = 0;
    }
    if (s.batch > 1) {
      PlanInput& half =
          add(fmt::format("batch {:g}, accumulate {}", s.batch / 2, 2 * s.accumulate));
      half.strategy.batch = s.batch / 2;
      half.strategy.accumulate = 2 * s.accumulate;
      half.measured.step /= 2;
      half.model.recorded_seconds /= 2;
    }
    if (!s.recompute) add("recompute activations").strategy.recompute = true;
    if (s.recompute) add("keep activations").strategy.recompute = false;
  }

  const PlanInput& input_;
  std::vector<Change> changes_;
};

std::optional<Advice> evaluate(Change change, const StepTime& before, bool fits_now) {
  check_strategy(change.input.strategy);
  const StepTime after = step_time(change.input);
  const bool fits_then = fits(change.input);
  const bool is_faster = after.samples_per_second >= (1 + kMinGain) * before.samples_per_second;
  if (!fits_then || (fits_now && !is_faster)) return std::nullopt;
  std::string text = fmt::format("{}: {:.4g} -> {:.4g} samples/s, efficiency {:.1f} -> {:.1f} %",
                                 change.name, before.samples_per_second, after.samples_per_second,
                                 100 * before.eta, 100 * after.eta);
  if (!fits_now) text += ", and fits";
  return Advice{.change = std::move(change.name),
                .text = std::move(text),
                .note = std::move(change.note),
                .eta = after.eta,
                .samples_per_second = after.samples_per_second,
                .fits = fits_then,
                .mends = change.mends,
                .input = std::move(change.input)};
}

}  // namespace

std::vector<Advice> advise(const PlanInput& input) {
  const StepTime before = step_time(input);
  const bool fits_now = fits(input);
  std::vector<Advice> advice;
  for (Change& change : CandidateChanges(input).all()) {
    if (auto good = evaluate(std::move(change), before, fits_now))
      advice.push_back(std::move(*good));
  }
  std::ranges::stable_sort(advice, std::greater<>(), [](const Advice& each) {
    return std::pair(each.mends, each.samples_per_second);
  });
  return advice;
}

}  // namespace gradwire::plan
