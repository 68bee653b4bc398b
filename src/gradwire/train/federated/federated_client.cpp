#include "gradwire/train/federated/federated_client.h"

#include <atomic>
#include <numeric>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <poll.h>

#include "gradwire/base/clock.h"
#include "gradwire/base/json_fields.h"
#include "gradwire/base/log.h"
#include "gradwire/base/refuse.h"
#include "gradwire/federated/remote/client_session.h"
#include "gradwire/federated/remote/eligibility.h"
#include "gradwire/net/host_network.h"
#include "gradwire/net/poll_set.h"
#include "gradwire/train/federated/client_plan.h"
#include "gradwire/train/federated/model_bytes.h"
#include "gradwire/train/federated/module_trainer.h"
#include "gradwire/train/federated/tensor_order.h"

namespace gradwire {
namespace {

using federated::ClientSession;

constexpr double kEligibilitySeconds = 10;  ///< Between two looks while it is not eligible.

OptimizerFactory plain_sgd(const std::string& json) {
  return value_or_throw(
      read_json_fields(json, "the plan's optimizer", [](JsonFields fields) -> OptimizerFactory {
        const std::string name = fields.text("name");
        if (name != "sgd") {
          refuse(
              "the server's plan has the local optimizer {}: set FederatedClientOptions::optimizer "
              "to a function that makes it",
              name);
        }
        auto options = torch::optim::SGDOptions(fields.number("learning_rate", 0, 1e6));
        options.momentum(fields.number_or("momentum", 0, 0, 1));
        options.weight_decay(fields.number_or("weight_decay", 0, 0, 1e6));
        options.nesterov(fields.flag_or("nesterov", false));
        return [options](const std::vector<torch::Tensor>& parameters) {
          return std::make_unique<torch::optim::SGD>(parameters, options);
        };
      }));
}

ClientSession::Options session_options(const FederatedClientOptions& options) {
  const FederatedLimits& limits = options.limits;
  std::filesystem::path state = options.identity;
  return {.identity = value_or_throw(federated::read_identity(options.identity)),
          .server = options.server,
          .state = state.replace_extension(".state"),
          .limits = {.round = {.compute_seconds = limits.round_seconds,
                               .up_bytes = limits.round_up_bytes,
                               .down_bytes = limits.round_down_bytes},
                     .day = {.compute_seconds = limits.day_seconds,
                             .up_bytes = limits.day_up_bytes,
                             .down_bytes = limits.day_down_bytes},
                     .memory_bytes = limits.memory_bytes},
          .secure = {.is_required = options.secure.required,
                     .least = {.neighbours = options.secure.least_threshold,
                               .threshold = options.secure.least_threshold,
                               .active = options.secure.active}},
          .give_up = duration_of(options.give_up_seconds)};
}

}  // namespace

HeldOut one_client(const DataSet& data, double held_out, std::uint64_t seed) {
  std::vector<std::int64_t> all(static_cast<std::size_t>(data.size));
  std::iota(all.begin(), all.end(), 0);
  ClientSamples client;
  client.add(all);
  return hold_out(client, held_out, seed);
}

/// The client's end of a FederatedServer, round after round.
class FederatedClient::Participant {
 public:
  explicit Participant(FederatedClientOptions options)
      : options_(std::move(options)),
        session_(network_, session_options(options_), &time_of_day),
        id_(value_or_throw(federated::read_identity(options_.identity)).id),
        eligibility_(network_.clock(), {.plugged = options_.plugged, .command = options_.eligible}),
        stop_(value_or_throw(network_.make_pair())) {
    if (!options_.optimizer) options_.optimizer = plain_sgd;
  }

  const ModelDescription& description() {
    if (!description_) {
      description_ =
          value_or_throw(model_description_from_json(value_or_throw(session_.describe())));
    }
    return *description_;
  }

  std::int64_t run(const TrainableModule& module, const DataSet& data, const HeldOut& own,
                   const std::function<void(const ClientRound&)>& on_round);

  void stop() {
    is_stopped_ = true;
    stop_.second.close();
    session_.cancel();
  }

 private:
  /// The things that run() works with.
  struct Training {
    const TrainableModule& module;
    const DataSet& data;
    const HeldOut& own;
    TensorOrder order;
    std::unique_ptr<ModuleTrainer> trainer;
    std::optional<ClientPlan> made_for;  ///< The trainer.
    std::int64_t counted = 0;
  };

  bool wait_until_eligible();
  bool wait(double seconds);
  Status take(const federated::ClientTask& task, const ClientPlan& plan, std::size_t elements);
  ModuleTrainer& trainer_for(const ClientPlan& plan, Training& training);
  ClientRound take_part(const federated::ClientTask& task, Training& training, double& come_back);
  federated::LocalResult train(const federated::ClientTask& task, const ClientPlan& plan,
                               std::span<const float> model, Training& training);
  void upload(const federated::UploadOrder& order, const ClientPlan& plan,
              const federated::LocalResult& result, ClientRound& round, double& come_back);
  void leave(ClientRound& round, std::string reason);

  FederatedClientOptions options_;
  net::KernelNetwork network_;
  ClientSession session_;
  federated::ClientId id_;
  federated::Eligibility eligibility_;
  std::pair<net::Socket, net::Socket> stop_;
  std::atomic<bool> is_stopped_ = false;
  std::optional<ModelDescription> description_;
  std::int64_t version_ = -1;  ///< The model's,
  std::vector<float> values_;  ///< in the server's order.
  double seconds_ = 0;         ///< The last training's.
  std::string ended_early_;    ///< Why it was not complete; empty: it was.
};

std::int64_t FederatedClient::Participant::run(
    const TrainableModule& module, const DataSet& data, const HeldOut& own,
    const std::function<void(const ClientRound&)>& on_round) {
  if (own.train.clients() != 1 || own.train.total() < 1)
    refuse("a federated client needs the samples of one client, at least one (one_client())");
  Training training{.module = module,
                    .data = data,
                    .own = own,
                    .order = {federated_tensors(*module.module), description()}};
  while (wait_until_eligible()) {
    auto checked_in = session_.check_in(own.train.total(), version_);
    if (!checked_in && is_stopped_) break;
    const ClientSession::CheckedIn answer = value_or_throw(std::move(checked_in));
    if (std::holds_alternative<federated::Over>(answer)) break;
    double come_back = 0;
    if (const auto* back = std::get_if<federated::ComeBack>(&answer)) {
      come_back = back->seconds;
    } else {
      const ClientRound round =
          take_part(std::get<federated::ClientTask>(answer), training, come_back);
      if (on_round) on_round(round);
    }
    if (!wait(come_back)) break;
  }
  return training.counted;
}

/// Returns false after stop().
bool FederatedClient::Participant::wait(double seconds) {
  net::PollSet set;
  set.add(stop_.first, POLLIN);
  if (seconds > 0) set.wait(net::Deadline::after(network_.clock(), duration_of(seconds)));
  return !is_stopped_;
}

bool FederatedClient::Participant::wait_until_eligible() {
  std::string said;
  while (!is_stopped_) {
    const std::string& reason = eligibility_.check_now();
    if (reason.empty()) return true;
    if (std::exchange(said, reason) != reason)
      log_warning("not eligible: {}; looking again every {:.0f} s", reason, kEligibilitySeconds);
    wait(kEligibilitySeconds);
  }
  return false;
}

// --- a round ---

/// The task's model, from what was sent. Fails with corrupted.
Status FederatedClient::Participant::take(const federated::ClientTask& task, const ClientPlan& plan,
                                          std::size_t elements) {
  const ModelType type = plan.is_bf16 ? ModelType::bf16 : ModelType::float32;
  const bool is_whole = task.base_version < 0;
  const std::int64_t had = std::exchange(version_, -1);
  if (!is_whole && task.base_version != had) {
    return failure(ErrorKind::corrupted,
                   fmt::format("the server sent the difference to version {}, which this client "
                               "does not have",
                               task.base_version));
  }
  GRADWIRE_ASSIGN_OR_RETURN(values_, is_whole ? model_in(task.model.bytes(), elements, type)
                                              : model_after(task.model.bytes(), values_, type));
  if (checksum_of(values_) != plan.checksum) {
    return failure(ErrorKind::corrupted,
                   "the model is not the server's: its checksum differs; the next one is whole");
  }
  version_ = task.version;
  return {};
}

ModuleTrainer& FederatedClient::Participant::trainer_for(const ClientPlan& plan,
                                                         Training& training) {
  const auto& made = training.made_for;
  const bool is_same = made && made->epochs == plan.epochs && made->batch_size == plan.batch_size &&
                       made->optimizer == plan.optimizer && made->order_seed == plan.order_seed;
  if (is_same) return *training.trainer;
  const LocalPlan local{.epochs = plan.epochs,
                        .batch_size = plan.batch_size,
                        .optimizer = options_.optimizer(plan.optimizer),
                        .seed = plan.order_seed};
  training.trainer =
      std::make_unique<ModuleTrainer>(training.module, training.data, training.own, local);
  training.made_for = plan;
  return *training.trainer;
}

ClientRound FederatedClient::Participant::take_part(const federated::ClientTask& task,
                                                    Training& training, double& come_back) {
  ClientRound round{.round = task.round};
  const auto plan = client_plan_from_json(task.plan);
  const Status taken = plan ? take(task, *plan, training.order.elements())
                            : Status(tl::unexpected<Error>(plan.error()));
  if (!taken) {
    leave(round, taken.error().message);
    return round;
  }
  federated::LocalResult result = train(task, *plan, training.order.to_own(values_), training);
  round.steps = result.steps;
  round.all_steps = steps_of({.epochs = plan->epochs, .batch_size = plan->batch_size},
                             training.own.train.total());
  round.training_loss = result.training_loss;
  round.before = {result.evaluated, result.correct, result.loss};
  const bool is_partial = round.steps < round.all_steps;
  if (is_stopped_ || round.steps == 0 ||
      (is_partial && plan->partial == federated::Partial::drop)) {
    leave(round, ended_early_.empty() ? "it was stopped" : ended_early_);
    return round;
  }
  const auto after = session_.ready(result.steps, seconds_);
  if (!after) {
    round.reason = after.error().message;
  } else if (const auto* late = std::get_if<federated::NotNeeded>(&*after)) {
    come_back = late->seconds;
    round.reason = "the update was not needed";
  } else {
    const std::vector<float> update = training.order.to_server(result.update);
    result.update = update;
    upload(std::get<federated::UploadOrder>(*after), *plan, result, round, come_back);
  }
  if (round.counted) ++training.counted;
  return round;
}

federated::LocalResult FederatedClient::Participant::train(const federated::ClientTask& task,
                                                           const ClientPlan& plan,
                                                           std::span<const float> model,
                                                           Training& training) {
  const Clock& clock = network_.clock();
  const double allowed = session_.costs().compute_seconds_left();
  const Time began = clock.now();
  std::int64_t steps = 0;
  ended_early_.clear();
  const auto goes_on = [&] {
    const Duration elapsed = clock.now() - began;
    const Duration a_step = steps > 0 ? elapsed / steps : Duration{};
    ++steps;
    if (is_stopped_) {
      ended_early_ = "it was stopped";
    } else if (!eligibility_.check().empty()) {
      ended_early_ = eligibility_.check();
    } else if (clock.now() + a_step > task.deadline) {
      ended_early_ = "the time of the round was over";
    } else if (seconds(elapsed + a_step) > allowed) {
      ended_early_ = "the limit of compute was reached";
    }
    return ended_early_.empty();
  };
  const federated::LocalResult result = trainer_for(plan, training)
                                            .train({.client = id_,
                                                    .round = task.round,
                                                    .epochs = static_cast<double>(plan.epochs),
                                                    .model = model,
                                                    .proximal = plan.proximal,
                                                    .part = 0,
                                                    .goes_on = goes_on});
  seconds_ = seconds(clock.now() - began);
  return result;
}

void FederatedClient::Participant::upload(const federated::UploadOrder& order,
                                          const ClientPlan& plan,
                                          const federated::LocalResult& result, ClientRound& round,
                                          double& come_back) {
  const federated::UpdateQuantizer quantizer(plan.update, values_.size(), plan.range,
                                             plan.round_seed);
  const federated::UpdateRules rules{.quantizer = &quantizer,
                                     .normalizes = plan.partial == federated::Partial::normalize,
                                     .seed = plan.rounding_seed};
  const auto contribution =
      encode(result, {.client = id_, .round = round.round},
             {.bits = static_cast<int>(order.bits), .weight = order.weight}, rules);
  if (!contribution) return leave(round, contribution.error().message);
  const auto done = session_.upload(*contribution);
  round.counted = done && done->counts;
  if (done) come_back = done->seconds;
  if (!round.counted) round.reason = done ? "the round went on without it" : done.error().message;
}

/// The server hears it, so that it does not wait.
void FederatedClient::Participant::leave(ClientRound& round, std::string reason) {
  round.reason = reason;
  if (is_stopped_) return;
  const Status left = session_.leave(std::move(reason));
  if (!left) log_warning("{}", left.error().message);
}

// --- FederatedClient ---

FederatedClient::FederatedClient(FederatedClientOptions options)
    : participant_(std::make_unique<Participant>(std::move(options))) {}
FederatedClient::~FederatedClient() = default;
FederatedClient::FederatedClient(FederatedClient&&) noexcept = default;

std::string FederatedClient::configuration() {
  return participant_->description().configuration;
}

std::int64_t FederatedClient::run(const TrainableModule& module, const DataSet& data,
                                  const HeldOut& own,
                                  const std::function<void(const ClientRound&)>& on_round) {
  return participant_->run(module, data, own, on_round);
}

void FederatedClient::stop() {
  participant_->stop();
}

}  // namespace gradwire
