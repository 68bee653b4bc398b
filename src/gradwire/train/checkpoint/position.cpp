#include "gradwire/train/checkpoint/position.h"

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "gradwire/base/refuse.h"

namespace gradwire {
namespace {

// The product of two such values does not overflow.
constexpr std::int64_t kMaxCount = std::int64_t{1} << 31;

}  // namespace

std::string position_text(const RunPosition& position) {
  return nlohmann::json{{"epoch", position.steps / position.batches},
                        {"batch", position.steps % position.batches},
                        {"batches", position.batches},
                        {"batch_size", position.batch_size},
                        {"seed", position.seed}}
      .dump();
}

ResumedPosition resumed_position(const std::string& saved, const RunPosition& now) {
  const auto json = nlohmann::json::parse(saved, nullptr, false);
  if (!json.is_object() || !json.contains("epoch")) {
    refuse("the checkpoint has no training position: it was not written by gradwire train");
  }
  const auto count = [&json](const char* key, std::int64_t min) {
    const auto found = json.find(key);
    const bool number = found != json.end() && found->is_number_integer();
    const auto value = number ? found->get<std::int64_t>() : -1;
    if (value >= min && value <= kMaxCount) return value;
    refuse(
        "in the checkpoint's training position '{}' is {}; it must be a "
        "whole number from {} to {}: use another checkpoint",
        key, number ? found->dump() : "none", min, kMaxCount);
  };
  const auto epoch = count("epoch", 0);
  const auto batch = count("batch", 0);
  const auto batches = count("batches", 1);
  const auto batch_size = count("batch_size", 1);
  const bool same = batches == now.batches && batch_size == now.batch_size;
  const auto next = same ? batch : std::min(now.batches, batch * batch_size / now.batch_size);
  ResumedPosition resumed{.steps = epoch * now.batches + next};
  if (!same) {
    resumed.remark = fmt::format("epoch {} continues at batch {} of {} instead of {} of {}",
                                 epoch + 1, next, now.batches, batch, batches);
  } else if (json.value("seed", nlohmann::json()) != now.seed) {
    resumed.remark = "the seed differs, and so does the order of samples";
  }
  return resumed;
}

}  // namespace gradwire
