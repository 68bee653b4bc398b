#include "gradwire/cli/bench/default_python.h"

#include <filesystem>

#include <unistd.h>

#include "gradwire/cli/launch/process.h"

namespace gradwire {

std::string default_python(const Environment& environment) {
  if (const auto given = environment("GRADWIRE_PYTHON")) return *given;
  const std::filesystem::path build =
      std::filesystem::path(own_executable()).parent_path().parent_path();
  const std::filesystem::path ours = build.parent_path() / ".venv/bin/python";
  return ::access(ours.c_str(), X_OK) == 0 ? ours.string() : "python3";
}

}  // namespace gradwire
