#include "gradwire/train/federated/run_state.h"

#include <algorithm>
#include <map>
#include <utility>

#include <nlohmann/json.hpp>

#include "gradwire/base/log.h"
#include "gradwire/base/refuse.h"

namespace gradwire {

nlohmann::json to_json(const federated::ClientRecord& record) {
  return {record.samples,         record.eligible, record.asked,     record.counted,
          record.compute_seconds, record.up_bytes, record.down_bytes};
}

federated::ClientRecord client_record_of(const nlohmann::json& json) {
  return {json.at(0), json.at(1), json.at(2), json.at(3), json.at(4), json.at(5), json.at(6)};
}

nlohmann::json to_json(const AdaptiveProximal& proximal) {
  return {{"mu", proximal.mu},
          {"falls", proximal.falls},
          {"last_loss", proximal.last_loss ? nlohmann::json(*proximal.last_loss) : nullptr}};
}

AdaptiveProximal proximal_of(const nlohmann::json& json) {
  AdaptiveProximal proximal{.mu = json.at("mu"), .falls = json.at("falls")};
  if (const auto& loss = json.at("last_loss"); !loss.is_null()) proximal.last_loss = loss;
  return proximal;
}

namespace {

/// The values by their places.
std::map<std::string, nlohmann::json> values_of(const nlohmann::json& configuration) {
  std::map<std::string, nlohmann::json> values;
  const nlohmann::json flat = configuration.flatten();
  for (const auto& [path, value] : flat.items()) {
    if (value.is_null() || path == "/rounds" || path == "/data/path") continue;
    std::string name = path.substr(1);
    std::ranges::replace(name, '/', '.');
    values[name] = value;
  }
  return values;
}

void check_configuration(const nlohmann::json& run, const nlohmann::json& configuration,
                         const std::filesystem::path& checkpoint) {
  if (!run.contains("configuration")) {
    log_warning(
        "{} is of an earlier version, which wrote no configuration: whether this one is the same "
        "is "
        "not checked",
        checkpoint.string());
    return;
  }
  const auto then = values_of(run["configuration"]), now = values_of(configuration);
  const auto text_in = [](const auto& values, const std::string& key) {
    const auto found = values.find(key);
    return found == values.end() ? std::string("not given") : found->second.dump();
  };
  auto all = now;
  all.insert(then.begin(), then.end());
  for (const auto& [key, value] : all) {
    if (text_in(then, key) == text_in(now, key)) continue;
    refuse("{} is of another configuration: {} is {} there, and {} here", checkpoint.string(), key,
           text_in(then, key), text_in(now, key));
  }
}

}  // namespace

void save_checkpoint(GlobalModel& model, const std::filesystem::path& path, nlohmann::json run,
                     const std::string& configuration) {
  run["configuration"] = nlohmann::json::parse(configuration);
  model.save(path, run.dump());
}

nlohmann::json load_checkpoint(GlobalModel& model, const std::filesystem::path& path,
                               const std::string& configuration) {
  return nlohmann::json::parse(model.load(path, [&](const std::string& run) {
    check_configuration(nlohmann::json::parse(run), nlohmann::json::parse(configuration), path);
  }));
}

}  // namespace gradwire
