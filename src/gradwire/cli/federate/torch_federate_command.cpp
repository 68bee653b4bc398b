#include <array>
#include <string_view>

#include "gradwire/cli/commands.h"
#include "gradwire/cli/dispatch.h"

namespace gradwire::cli {
namespace {

constexpr std::array<Command, 3> kFederateCommands{{
    {"simulate", "Simulates rounds of many clients in this process", federate_simulate_command},
    {"serve", "Plans rounds for clients, and sums their updates", federate_serve_command},
    {"client", "Takes part in rounds, with data that stay here", federate_client_command},
}};

}  // namespace

int torch_federate_command(int argc, char** argv) {
  return dispatch("gradwire federate", "Trains on clients that keep their data", kFederateCommands,
                  argc, argv);
}

}  // namespace gradwire::cli
