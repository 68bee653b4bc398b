#include "gradwire/train/checkpoint/position.h"

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "gradwire/base/error.h"

namespace gradwire {

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
    throw Exception(ErrorKind::invalid_argument,
                    "the checkpoint does not say how far training had come: it was not written by "
                    "gradwire train");
  }
  const auto epoch = json.at("epoch").get<std::int64_t>();
  const auto batch = json.at("batch").get<std::int64_t>();
  const auto batches = json.at("batches").get<std::int64_t>();
  const auto batch_size = json.at("batch_size").get<std::int64_t>();
  const bool same = batches == now.batches && batch_size == now.batch_size;
  const auto next = same ? batch : std::min(now.batches, batch * batch_size / now.batch_size);
  ResumedPosition resumed{.steps = epoch * now.batches + next};
  if (!same) {
    resumed.remark = fmt::format("epoch {} goes on at batch {} of {} in place of {} of {}",
                                 epoch + 1, next, now.batches, batch, batches);
  } else if (json.at("seed").get<std::uint64_t>() != now.seed) {
    resumed.remark = "with another seed, the order of samples is another";
  }
  return resumed;
}

}  // namespace gradwire
