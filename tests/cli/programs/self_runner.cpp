// Runs itself as three ranks, each of which prints its rank.
#include <iostream>

#include "gradwire/bootstrap/job.h"
#include "gradwire/cli/launch/launch_arguments.h"

int main() {
  const gradwire::bootstrap::Environment environment = gradwire::bootstrap::process_environment();
  const auto rank = environment("RANK");
  if (!rank) return gradwire::cli::run_self({"an", "argument"}, 3, "self_runner");
  std::cout << "rank " << *rank << " of " << environment("WORLD_SIZE").value_or("?") << std::endl;
  std::cerr << "error " << *rank << std::endl;
  return 0;
}
