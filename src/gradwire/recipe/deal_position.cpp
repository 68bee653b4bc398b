#include "gradwire/recipe/deal_position.h"

#include <algorithm>
#include <vector>

#include <nlohmann/json.hpp>

#include "gradwire/base/error.h"
#include "gradwire/base/refuse.h"

namespace gradwire::recipe {
namespace {

using nlohmann::json;

servers::DealProgress read_progress(const json& dealt) {
  try {
    return servers::decode_progress(dealt.at("progress").get<std::vector<std::int64_t>>());
  } catch (const std::exception& error) {
    refuse("the checkpoint's training position has damaged samples ({}): use another checkpoint",
           error.what());
  }
}

}  // namespace

std::string position_text(const RunPosition& position, std::int64_t samples,
                          const servers::DealProgress& progress) {
  json text = json::parse(gradwire::position_text(position));
  text["dealt"] = {{"samples", samples}, {"progress", servers::encode(progress)}};
  return text.dump();
}

servers::DealProgress resumed_progress(const std::string& position, const RunPosition& now,
                                       std::int64_t samples, std::int64_t epochs) {
  const json saved = json::parse(position);
  const json dealt = saved.value("dealt", json::object());
  const bool same =
      dealt.value("samples", json()) == samples && saved.value("seed", json()) == now.seed;
  servers::DealProgress progress;
  if (same) {
    progress = read_progress(dealt);
  } else {
    progress.dealt = now.steps / now.batches * samples + now.steps % now.batches * now.batch_size;
  }
  // The run may have fewer epochs than the one that saved.
  progress.dealt = std::min(progress.dealt, samples * epochs);
  std::erase_if(progress.unapplied,
                [&](const servers::Deal& batch) { return batch.epoch >= epochs; });
  return progress;
}

}  // namespace gradwire::recipe
