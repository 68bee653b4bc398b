#include "gradwire/recipe/loss_scaler_config.h"

#include <cmath>

#include <fmt/format.h>

#include "gradwire/base/refuse.h"

namespace gradwire {
namespace {

constexpr double kMinScale = 1e-9;  ///< Minimum of any scale.
constexpr double kMaxScale = 1e12;  ///< Maximum of any scale, above 2^40.

/// "enabled" must agree with "precision", which also selects the 16-bit type.
void check_enabled(bool enabled, Precision computing) {
  if (enabled == (computing == Precision::fp16)) return;
  refuse(enabled ? fmt::format("fp16.enabled is true but precision is \"{}\"; set \"precision\": "
                               "\"fp16\" or, with ZeRO, {{\"parameters\": \"fp16\"}}",
                               name_of(computing))
                 : "fp16.enabled is false but precision is \"fp16\"; leave one of them out");
}

void read_dynamic(JsonObject& json, LossScalerOptions& options) {
  const auto usual = static_cast<std::int64_t>(std::log2(options.scale));
  options.scale = std::exp2(json.integer("initial_scale_power", usual, 0, 40));
  options.growth_interval =
      json.integer("loss_scale_window", options.growth_interval, 1, 1'000'000'000);
  options.hysteresis = json.integer("hysteresis", options.hysteresis, 1, 1'000'000);
  options.consecutive_hysteresis =
      json.flag("consecutive_hysteresis", options.consecutive_hysteresis);
  options.min_scale = json.number("min_loss_scale", options.min_scale, kMinScale, kMaxScale);
  if (options.min_scale <= options.scale) return;
  refuse(
      fmt::format("fp16.min_loss_scale is {}, above the initial scale {}: 2 to the power of "
                  "fp16.initial_scale_power",
                  options.min_scale, options.scale));
}

void refuse_dynamic(const JsonObject& json, double scale) {
  for (const auto* key : {"initial_scale_power", "loss_scale_window", "hysteresis",
                          "consecutive_hysteresis", "min_loss_scale"}) {
    if (!json.has(key)) continue;
    refuse(
        fmt::format("fp16.{} configures a dynamic scale, but fp16.loss_scale {} is a fixed one; "
                    "leave one of them out",
                    key, scale));
  }
}

}  // namespace

LossScalerOptions read_loss_scaling(JsonObject json, Precision computing) {
  if (computing != Precision::fp16 && !json.empty() && !json.has("enabled")) {
    refuse(
        fmt::format("fp16 configures loss scaling of precision \"fp16\", but precision is \"{}\"; "
                    "leave one of them out",
                    name_of(computing)));
  }
  check_enabled(json.flag("enabled", computing == Precision::fp16), computing);
  LossScalerOptions options;
  const double fixed = json.number("loss_scale", 0, 0, kMaxScale);
  if (fixed > 0) refuse_dynamic(json, fixed);
  read_dynamic(json, options);
  json.refuse_unknown();
  if (fixed == 0) return options;
  if (fixed < kMinScale) {
    refuse(fmt::format("fp16.loss_scale is {}; it must be 0 (dynamic) or at least {}", fixed,
                       kMinScale));
  }
  options.fixed = true;
  options.scale = fixed;
  return options;
}

}  // namespace gradwire
