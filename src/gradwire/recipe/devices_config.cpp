#include "gradwire/recipe/devices_config.h"

#include <algorithm>
#include <string_view>

#include "gradwire/base/refuse.h"

namespace gradwire::recipe {
namespace {

std::string_view type_of_device(std::string_view device) {
  return device.substr(0, device.find(':'));
}

/// Returns true for "cpu", and for "cuda:1" and the like.
bool is_device(std::string_view device) {
  if (device == "cpu") return true;
  const std::string_view type = type_of_device(device);
  if (type.empty() || type == "cpu" || type.size() == device.size()) return false;
  const std::string_view number = device.substr(type.size() + 1);
  return !number.empty() && number.find_first_not_of("0123456789") == std::string_view::npos;
}

}  // namespace

std::vector<std::string> read_devices(JsonFields& root) {
  const std::vector<std::string> devices = root.texts_or("devices", "");
  if (!root.has("devices")) return {};
  if (devices.empty()) refuse("devices is empty; name one for each replica, such as \"cpu\"");
  for (const std::string& device : devices) {
    if (!is_device(device))
      refuse("devices: \"{}\" is none; valid are \"cpu\", \"cuda:0\", \"cuda:1\", ...", device);
    if (type_of_device(device) != type_of_device(devices.front()))
      refuse("devices: {} and {} are of different types; use one", devices.front(), device);
  }
  return devices;
}

void check_devices(JsonFields& root, const TrainConfig& config) {
  if (config.devices.empty()) return;
  const auto refuse_if = [](bool wrong, const char* key) {
    if (wrong) refuse("{} is incompatible with devices; leave one of them out", key);
  };
  refuse_if(config.hogwild.enabled, "hogwild");
  refuse_if(config.servers.enabled, "servers");
  refuse_if(!root.object_or_empty("mesh").empty(), "mesh");
  refuse_if(config.model.tie_word_embeddings, "model.tie_word_embeddings");
  if (config.devices.size() > 1 && config.model.dropout > 0) {
    refuse(
        "model.dropout {:g} draws from the random numbers of the process, which several devices "
        "would share; set it to 0, or use one process for each device",
        config.model.dropout);
  }
}

}  // namespace gradwire::recipe
