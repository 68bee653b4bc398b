#include <chrono>

#include <nlohmann/json.hpp>

#include "gradwire/report/training_summary.h"

namespace gradwire {

std::string summary_json(const TrainingSummary& s) {
  const nlohmann::json json{{"ranks", s.ranks},
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
  return json.dump(1) + "\n";
}

}  // namespace gradwire
