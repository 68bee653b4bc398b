#include "gradwire/recipe/inside_config.h"

#include "gradwire/base/refuse.h"

namespace gradwire::recipe {

std::string read_inside(JsonFields& root) {
  std::string inside = root.text_or("inside", "");
  if (inside.empty() || inside == "own") return inside;
  if (inside == "gloo" || inside == "nccl") {
    refuse(
        "inside \"{}\": torch.distributed makes such groups: use \"own\" here, or "
        "gradwire.Options(inside=\"{}\") in Python",
        inside, inside);
  }
  refuse("inside is \"{}\"; valid is \"own\"", inside);
}

void check_inside(JsonFields& root, const TrainConfig& config) {
  if (config.inside.empty()) return;
  const auto refuse_if = [](bool wrong, const char* key) {
    if (wrong) refuse("{} is incompatible with inside; leave one of them out", key);
  };
  refuse_if(!config.devices.empty(), "devices");
  refuse_if(config.hogwild.enabled, "hogwild");
  refuse_if(config.servers.enabled, "servers");
  refuse_if(!root.object_or_empty("mesh").empty(), "mesh");
}

}  // namespace gradwire::recipe
