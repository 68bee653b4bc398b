#include "gradwire/train/federated/federated_client.h"

#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "gradwire/base/clock.h"
#include "gradwire/base/json_fields.h"
#include "gradwire/base/refuse.h"
#include "gradwire/federated/remote/participant.h"
#include "gradwire/net/host_network.h"
#include "gradwire/train/federated/client_group.h"
#include "gradwire/train/federated/global_model.h"
#include "gradwire/train/federated/module_trainer.h"

namespace gradwire {
namespace {

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

federated::Participant::Options participant_options(const FederatedClientOptions& options) {
  const FederatedLimits& limits = options.limits;
  auto made = federated::Participant::options_of(options.identity);
  made.session.server = options.server;
  made.session.limits = {.round = {.compute_seconds = limits.round_seconds,
                                   .up_bytes = limits.round_up_bytes,
                                   .down_bytes = limits.round_down_bytes},
                         .day = {.compute_seconds = limits.day_seconds,
                                 .up_bytes = limits.day_up_bytes,
                                 .down_bytes = limits.day_down_bytes},
                         .memory_bytes = limits.memory_bytes};
  made.session.secure = federated::SecureDemands::of(options.secure.required, options.secure.active,
                                                     options.secure.least_threshold);
  made.session.give_up = duration_of(options.give_up_seconds);
  made.eligibility.plugged = options.plugged;
  made.eligibility.command = options.eligible;
  return made;
}

std::vector<federated::ModelDescription::Shape> shapes_of(const FederatedTensors& tensors) {
  std::vector<federated::ModelDescription::Shape> shapes;
  for (const auto* list : {&tensors.parameters, &tensors.averaged})
    for (const auto& [name, tensor] : *list) shapes.push_back({name, tensor.sizes().vec()});
  return shapes;
}

}  // namespace

HeldOut one_client(const DataSet& data, double held_out, std::uint64_t seed) {
  std::vector<std::int64_t> all(static_cast<std::size_t>(data.size));
  std::iota(all.begin(), all.end(), 0);
  ClientSamples client;
  client.add(all);
  return hold_out(client, held_out, seed);
}

/// A Participant that trains libtorch's modules.
class FederatedClient::Impl {
 public:
  explicit Impl(FederatedClientOptions options)
      : optimizer_(options.optimizer ? std::move(options.optimizer) : plain_sgd),
        group_(options.group ? std::optional<ClientGroup>(options.group) : std::nullopt) {
    const auto make = [&] {
      participant_.emplace(network_, participant_options(options), &time_of_day);
    };
    if (!group_)
      make();
    else if (group_->leads())
      run_or_abort(group_->group(), make);  // The others are in run() already, or soon.
  }

  /// Throws Exception(invalid_argument) on ranks that do not speak with the server.
  federated::Participant& participant() {
    if (!participant_) refuse("a federated client of several ranks has its server at rank 0");
    return *participant_;
  }
  void stop() {
    if (participant_) participant_->stop();
  }

  std::int64_t run(const TrainableModule& module, const DataSet& data, const HeldOut& own,
                   const std::function<void(const ClientRound&)>& on_round);

 private:
  /// The things that run() works with.
  struct Training {
    TrainableModule module;
    const DataSet& data;
    const HeldOut& own;
    std::unique_ptr<ModuleTrainer> trainer;
    std::optional<federated::ClientPlan> made_for;  ///< The trainer.
  };

  using Work = federated::Participant::Work;
  std::int64_t run(Training& training, const std::function<void(const ClientRound&)>& on_round);
  std::optional<Work> next(Training& training);
  ModuleTrainer& trainer_for(const federated::ClientPlan& plan, Training& training);
  federated::LocalResult train(const Work& work, Training& training);
  ClientRound end(const Work& work, const federated::LocalResult& result, Training& training);

  std::function<OptimizerFactory(const std::string& json)> optimizer_;
  net::KernelNetwork network_;
  std::optional<ClientGroup> group_;
  std::optional<federated::Participant> participant_;  ///< None on ranks that follow rank 0.
};

std::int64_t FederatedClient::Impl::run(const TrainableModule& module, const DataSet& data,
                                        const HeldOut& own,
                                        const std::function<void(const ClientRound&)>& on_round) {
  Training training{.module = module, .data = data, .own = own};
  if (!group_) return run(training, on_round);
  training.module = group_->divided(module);
  std::int64_t counted = 0;
  run_or_abort(group_->group(), [&] { counted = run(training, on_round); });
  return counted;
}

std::int64_t FederatedClient::Impl::run(Training& training,
                                        const std::function<void(const ClientRound&)>& on_round) {
  if (training.own.train.clients() != 1 || training.own.train.total() < 1)
    refuse("a federated client needs the samples of one client, at least one (one_client())");
  if (participant_)
    participant_->set_tensors(shapes_of(federated_tensors(*training.module.module)));
  std::int64_t counted = 0;
  while (const auto work = next(training)) {
    const federated::LocalResult result = train(*work, training);
    if (!participant_) continue;
    const ClientRound round = end(*work, result, training);
    if (round.counted) ++counted;
    if (on_round) on_round(round);
  }
  return group_ ? group_->share_count(counted) : counted;
}

/// Rank 0 waits for the server, and the others for rank 0.
std::optional<federated::Participant::Work> FederatedClient::Impl::next(Training& training) {
  std::optional<Work> work;
  if (participant_) work = participant_->begin(training.own.train.total());
  if (!group_) return work;
  std::size_t elements = 0;
  for (const auto& shape : shapes_of(federated_tensors(*training.module.module)))
    elements += static_cast<std::size_t>(c10::multiply_integers(shape.sizes));
  return group_->share(std::move(work), elements);
}

ModuleTrainer& FederatedClient::Impl::trainer_for(const federated::ClientPlan& plan,
                                                  Training& training) {
  const auto& made = training.made_for;
  const bool is_same = made && made->epochs == plan.epochs && made->batch_size == plan.batch_size &&
                       made->optimizer == plan.optimizer && made->order_seed == plan.order_seed;
  if (is_same) return *training.trainer;
  const LocalPlan local{.epochs = plan.epochs,
                        .batch_size = plan.batch_size,
                        .optimizer = optimizer_(plan.optimizer),
                        .seed = plan.order_seed};
  training.trainer =
      std::make_unique<ModuleTrainer>(training.module, training.data, training.own, local);
  training.made_for = plan;
  return *training.trainer;
}

federated::LocalResult FederatedClient::Impl::train(const Work& work, Training& training) {
  return trainer_for(work.plan, training)
      .train({.client = work.client,
              .round = work.round,
              .epochs = static_cast<double>(work.plan.epochs),
              .model = work.model,
              .proximal = work.plan.proximal,
              .part = 0,
              .goes_on = [this] {
                const bool own = participant_ && participant_->goes_on();
                return group_ ? group_->agree(own) : own;
              }});
}

ClientRound FederatedClient::Impl::end(const Work& work, const federated::LocalResult& result,
                                       Training& training) {
  const LocalPlan plan{.epochs = work.plan.epochs, .batch_size = work.plan.batch_size};
  const std::int64_t all_steps = steps_of(plan, training.own.train.total());
  auto [counted, reason] = participant_->end(result, all_steps);
  return {.round = work.round,
          .steps = result.steps,
          .all_steps = all_steps,
          .training_loss = result.training_loss,
          .before = {result.evaluated, result.correct, result.loss},
          .counted = counted,
          .reason = std::move(reason)};
}

// --- FederatedClient ---

FederatedClient::FederatedClient(FederatedClientOptions options)
    : impl_(std::make_unique<Impl>(std::move(options))) {}
FederatedClient::~FederatedClient() = default;
FederatedClient::FederatedClient(FederatedClient&&) noexcept = default;

std::string FederatedClient::configuration() {
  return impl_->participant().description().configuration;
}

std::int64_t FederatedClient::run(const TrainableModule& module, const DataSet& data,
                                  const HeldOut& own,
                                  const std::function<void(const ClientRound&)>& on_round) {
  return impl_->run(module, data, own, on_round);
}

void FederatedClient::stop() {
  impl_->stop();
}

}  // namespace gradwire
