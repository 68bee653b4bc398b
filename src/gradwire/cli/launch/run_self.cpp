#include "gradwire/cli/launch/run_self.h"

#include "gradwire/cli/launch/launch.h"
#include "gradwire/cli/launch/process.h"

namespace gradwire {

int run_self(const std::vector<std::string>& arguments, int ranks, const std::string& name) {
  LaunchOptions options;
  options.program = {own_executable()};
  options.program.insert(options.program.end(), arguments.begin(), arguments.end());
  options.ranks = ranks;
  options.output = RankOutput::first_plain;
  options.name = name;
  return launch(options);
}

}  // namespace gradwire
