#include <array>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <fcntl.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "gradwire/base/clock.h"
#include "gradwire/base/cpu.h"
#include "gradwire/base/file.h"
#include "gradwire/base/refuse.h"
#include "gradwire/cli/command_line.h"
#include "gradwire/cli/commands.h"
#include "gradwire/federated/remote/federated_server.h"
#include "gradwire/federated/update_quantizer.h"
#include "gradwire/recipe/federated_run.h"
#include "gradwire/recipe/federated_serve.h"
#include "gradwire/report/federated_record.h"

namespace gradwire::cli {
namespace {

/// Written to by handlers of signals; libtorch has threads, so signalfd(2) does not do.
int stop_pipe = -1;

/// While it lives, SIGTERM and SIGINT make stop() readable. One object per process.
class ReadableSignals {
 public:
  ReadableSignals() {
    std::array<int, 2> ends{-1, -1};
    if (::pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0) refuse("cannot make a pipe");
    stop_ = net::Socket(ends[0]);
    stop_pipe = ends[1];
    struct sigaction action {};
    action.sa_handler = [](int) {
      const int error = errno;
      (void)!::write(stop_pipe, "", 1);
      errno = error;
    };
    for (std::size_t i = 0; i < kSignals.size(); ++i)
      ::sigaction(kSignals[i], &action, &former_[i]);
  }
  ~ReadableSignals() {
    for (std::size_t i = 0; i < kSignals.size(); ++i)
      ::sigaction(kSignals[i], &former_[i], nullptr);
    ::close(std::exchange(stop_pipe, -1));
  }
  ReadableSignals(const ReadableSignals&) = delete;
  ReadableSignals& operator=(const ReadableSignals&) = delete;

  const net::Socket& stop() const { return stop_; }

 private:
  static constexpr std::array kSignals{SIGTERM, SIGINT};
  net::Socket stop_;
  std::array<struct sigaction, kSignals.size()> former_{};
};

struct ServeArguments {
  std::string config;
  std::vector<std::string> settings;
  std::string key, listen, output = ".", json;
  std::int64_t checkpoint_every = 1;
  bool resumes = false;
};

void declare_serve(CLI::App& app, ServeArguments& given) {
  app.add_option("CONFIG", given.config, "JSON file (docs/federated.md)")->required();
  app.add_option("--key", given.key, "the server's key, made by gradwire federate enrol")
      ->required();
  app.add_option("--listen", given.listen,
                 "HOST:PORT or :PORT, which is this host's address towards other networks; port "
                 "0: any free one")
      ->required();
  app.add_option("--output", given.output,
                 "folder for the model, its checkpoint, the rounds and the result")
      ->capture_default_str();
  app.add_flag("--resume", given.resumes, "goes on from the checkpoint in the output folder");
  app.add_option("--checkpoint-every", given.checkpoint_every, "rounds between two checkpoints")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--set", given.settings,
                 "replaces a value of the configuration, such as round.use=50; repeatable")
      ->allow_extra_args(false);
  app.add_option("--json", given.json, "file for rounds and fairness as JSON");
}

/// The source address of packets that leave by the default route; the loopback's without one.
net::SocketAddress own_address(std::uint16_t port) {
  const auto far = value_or_throw(net::SocketAddress::of("192.0.2.1", 9));  // RFC 5737: nobody's.
  const auto source = net::route_source(far);
  if (source) return source->with_port(port);
  return value_or_throw(net::SocketAddress::of("127.0.0.1", port));
}

net::SocketAddress listen_address(const std::string& text) {
  const bool is_port = text.starts_with(':');
  const std::size_t colon = text.rfind(':');
  if (colon == std::string::npos) refuse("--listen {}: expected HOST:PORT or :PORT", text);
  if (!is_port) {
    if (const auto numeric = net::SocketAddress::parse(text)) return *numeric;
  }
  const auto port = value_or_throw(net::SocketAddress::parse("127.0.0.1" + text.substr(colon)));
  if (is_port) return own_address(port.port());
  return value_or_throw(net::resolve(text.substr(0, colon), port.port())).front();
}

/// RoundPolicy::update_bits at most: those of the first round may be more.
int most_bits(const federated::QuantizerOptions& update) {
  return std::max(update.bits, federated::first_round(update).bits);
}

void print_waiting(std::int64_t clients, Duration longest) {
  fmt::print("waiting for {} clients to fetch the end, at most {:.0f} s\n", clients,
             seconds(longest));
  std::fflush(stdout);
}

federated::FederatedServer::Options server_options_of(const recipe::FederatedConfig& config,
                                                      const ServedModel& model) {
  federated::FederatedServer::Options options;
  options.rounds.policy = config.round;
  options.rounds.policy.update_bits = most_bits(config.update);
  if (auto& secure = options.rounds.policy.secure) secure->threads = usable_cores();
  options.rounds.first_round = model.first_round();
  options.rounds.seed = config.seed;
  options.rounds.ledger = model.ledger();
  options.on_waiting = print_waiting;
  // Sums have at most 64 bits.
  if (config.round.selection != federated::Selection::proportional) {
    while (options.rounds.max_samples > 1 &&
           federated::sum_bits(options.rounds.policy.update_bits,
                               config.round.use * options.rounds.max_samples) > 64)
      options.rounds.max_samples /= 2;
  }
  return options;
}

void print_round(const FederationRound& round) {
  fmt::print("{}\n", recipe::round_text(round));
  std::fflush(stdout);
}

recipe::FederatedConfig load_served(const ServeArguments& given) {
  return read_arguments([&] {
    return recipe::load_federated_config(given.config, given.settings, recipe::FederatedUse::serve);
  });
}

/// The files that a server leaves at its end.
void write_results(const ServeArguments& given, const ServedModel& model,
                   const federated::ClientLedger& ledger) {
  model.write_model();
  const std::filesystem::path folder = given.output;
  const std::string result = recipe::served_json(folder, ledger).dump(1) + "\n";
  write_file(folder / report::FederatedRecord::kFileName, result);
  if (!given.json.empty()) write_file(given.json, result);
}

void print_end(const ServeArguments& given, const ServedModel& model, std::int64_t rounds) {
  const std::filesystem::path file = std::filesystem::path(given.output) / ServedModel::kModel;
  if (model.model().version() >= rounds)
    fmt::print("{} rounds are complete; the model is {}\n", rounds, file.string());
  else
    fmt::print("stopped after {} of {} rounds; the model is {}; go on with --resume\n",
               model.model().version(), rounds, file.string());
}

int serve(const ServeArguments& given) {
  const ReadableSignals signals;
  const recipe::FederatedConfig config = load_served(given);
  if (!given.json.empty()) check_writable(given.json);
  federated::Enrolment enrolment(given.key, federated::Enrolment::Missing::refused);
  std::unique_ptr<ServedModel> model = read_arguments([&] {
    return recipe::make_served_model(
        config, {.folder = given.output,
                 .resumes = given.resumes,
                 .checkpoint_every = given.checkpoint_every,
                 .on_round = print_round,
                 .on_complete = [&] { write_results(given, *model, model->ledger()); }});
  });
  if (model->is_complete()) {  // Its last run may have ended before it had written them.
    write_results(given, *model, model->ledger());
    print_end(given, *model, config.rounds);
    return 0;
  }
  const net::KernelNetwork network;
  net::Socket listener = value_or_throw(
      read_arguments([&] { return network.listen_on(listen_address(given.listen)); }));
  fmt::print("listening at {}: rounds {} to {}, {} clients enrolled\n{}\n",
             net::local_address(listener).to_string(), model->model().version() + 1, config.rounds,
             enrolment.clients().size(), recipe::served_widths_text(config));
  std::fflush(stdout);
  federated::FederatedServer server(network, std::move(listener), enrolment, *model,
                                    server_options_of(config, *model));
  value_or_throw(server.run(signals.stop()));
  if (!model->is_complete()) write_results(given, *model, server.ledger());
  print_end(given, *model, config.rounds);
  return 0;
}

}  // namespace

int federate_serve_command(int argc, char** argv) {
  ServeArguments given;
  CLI::App app("Serves federated learning: plans rounds, and sums the updates of clients",
               "gradwire federate serve");
  declare_serve(app, given);
  if (const auto status = parse_command_line(app, argc, argv)) return *status;
  return serve(given);
}

}  // namespace gradwire::cli
