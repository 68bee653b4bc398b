#include "gradwire/cli/launch/run_self.h"

#include <utility>

#include "gradwire/cli/launch/process.h"

namespace gradwire {

int run_self(const std::vector<std::string>& arguments, int ranks, const std::string& name) {
  LaunchOptions options;
  options.ranks = ranks;
  options.name = name;
  return run_self(arguments, std::move(options));
}

int run_self(const std::vector<std::string>& arguments, LaunchOptions options) {
  options.program = {own_executable()};
  options.program.insert(options.program.end(), arguments.begin(), arguments.end());
  options.output = RankOutput::first_plain;
  return launch(options);
}

}  // namespace gradwire
