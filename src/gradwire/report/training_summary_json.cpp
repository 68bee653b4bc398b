#include <chrono>

#include <nlohmann/json.hpp>

#include "gradwire/report/training_summary.h"

namespace gradwire {
namespace {

nlohmann::json by_category(const MemoryBytes& bytes) {
  auto json = nlohmann::json::object();
  for (std::size_t i = 0; i < kMemoryCategories; ++i) {
    json[std::string(kMemoryCategoryNames[i])] = bytes[i];
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
  if (!s.codec.empty()) json["codec"] = s.codec;
  if (s.memory.resident > 0) json["resident_peak_bytes"] = s.memory.resident;
  if (s.memory.bytes > 0) {
    json["memory"] = {{"peak_bytes", s.memory.bytes},
                      {"at_peak", by_category(s.memory.at_peak)},
                      {"most", by_category(s.memory.max)}};
  }
  return json.dump(1) + "\n";
}

}  // namespace gradwire
