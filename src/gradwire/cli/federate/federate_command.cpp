#include <array>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gradwire/base/refuse.h"
#include "gradwire/cli/command_line.h"
#include "gradwire/cli/commands.h"
#include "gradwire/cli/dispatch.h"
#include "gradwire/cli/sibling.h"
#include "gradwire/federated/remote/enrolment.h"

namespace gradwire::cli {
namespace {

struct EnrolArguments {
  std::string key;
  std::string client, server;
  std::string revoked;
  bool lists = false;
};

void declare_enrol(CLI::App& app, EnrolArguments& given) {
  app.add_option("KEY", given.key, "the server's key, made if it does not exist")->required();
  auto* what = app.add_option_group("what");
  what->add_option("--client", given.client, "write the identity of a new client, of this name");
  what->add_option("--revoke", given.revoked,
                   "refuse this client from its next connection on, also while the server runs");
  what->add_flag("--list", given.lists, "print number, name and public key of the clients");
  what->require_option(1);
  app.add_option("--server", given.server, "with --client: HOST:PORT of the server, for it");
}

/// The shell has made the file for everybody to read; nothing is in it yet.
void make_output_private() {
  struct stat file {};
  const bool is_file = ::fstat(STDOUT_FILENO, &file) == 0 && S_ISREG(file.st_mode);
  if (is_file && ::fchmod(STDOUT_FILENO, S_IRUSR | S_IWUSR) != 0)
    refuse("cannot make the output private: only the client itself may read it");
}

int enrol(const EnrolArguments& given) {
  using federated::Enrolment;
  const bool is_new = !given.client.empty();
  Enrolment enrolment(given.key,
                      is_new ? Enrolment::Missing::created : Enrolment::Missing::refused);
  if (is_new) {
    make_output_private();
    fmt::print("{}", federated::to_json(enrolment.enrol(given.client, given.server)));
  } else if (!given.revoked.empty()) {
    enrolment.revoke(given.revoked);
  } else {
    for (const federated::EnrolledClient& client : enrolment.clients())
      fmt::print("{:>6} {:<24} {}\n", client.id, client.name,
                 federated::to_hex(client.certificate.key));
  }
  return 0;
}

int enrol_command(int argc, char** argv) {
  EnrolArguments given;
  CLI::App app("Gives clients identities, and takes them away", "gradwire federate enrol");
  declare_enrol(app, given);
  if (const auto status = parse_command_line(app, argc, argv)) return *status;
  return read_arguments([&] { return enrol(given); });
}

/// argv[0] is the subcommand.
int in_torch_program(int argc, char** argv) {
  std::string federate = "federate";
  std::vector<char*> arguments{federate.data()};
  arguments.insert(arguments.end(), argv, argv + argc);
  exec_torch_program(argc + 1, arguments.data());
}

constexpr auto kFederateCommands = std::to_array<Command>({
    {"enrol", "Gives clients identities, and takes them away", enrol_command},
    {"serve", "Plans rounds for clients, and sums their updates", in_torch_program},
    {"client", "Takes part in rounds, with data that stay here", in_torch_program},
    {"simulate", "Simulates rounds of many clients in this process", in_torch_program},
});

}  // namespace

int federate_command(int argc, char** argv) {
  return dispatch("gradwire federate",
                  "Federated learning: trains on devices whose data stay where they are",
                  kFederateCommands, argc, argv);
}

}  // namespace gradwire::cli
