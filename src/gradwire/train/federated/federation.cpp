#include "gradwire/train/federated/federation.h"

#include <numeric>
#include <utility>

#include "gradwire/base/cpu.h"

namespace gradwire {
namespace {

int threads_of(const FederationPlan& plan, bool draws_random_numbers) {
  if (draws_random_numbers) return 1;
  return plan.threads > 0 ? plan.threads : usable_cores();
}

std::vector<std::int64_t> samples_of(const HeldOut& clients) {
  std::vector<std::int64_t> samples;
  for (std::int64_t client = 0; client < clients.train.clients(); ++client)
    samples.push_back(std::ssize(clients.train[client]));
  return samples;
}

}  // namespace

Federation::Federation(const FederationPlan& plan, DataSet data, HeldOut clients,
                       const std::function<TrainableModule()>& make)
    : data_(std::move(data)), clients_(std::move(clients)), threads_before_(at::get_num_threads()) {
  at::set_num_threads(1);  // One for each operation: its sums do not depend on the cores.
  LocalPlan local = plan.local;
  local.seed = local_seed(plan);
  const auto trainer = [&](TrainableModule module) {
    return std::make_unique<ModuleTrainer>(std::move(module), data_, clients_, local,
                                           /*one_thread=*/true);
  };
  TrainableModule first = make();
  const FederatedTensors initial = federated_tensors(*first.module);
  const int threads = threads_of(plan, first.draws_random_numbers);
  std::vector<std::unique_ptr<federated::ClientTrainer>> trainers;
  for (int i = 0; i < threads; ++i) trainers.push_back(trainer(make()));
  rounds_ =
      std::make_unique<FederationRounds>(plan, initial, samples_of(clients_), std::move(trainers));
  evaluator_ = trainer(std::move(first));
}

Federation::~Federation() {
  at::set_num_threads(threads_before_);
}

void Federation::test_on(DataSet data, std::int64_t every) {
  test_samples_.resize(static_cast<std::size_t>(data.size));
  std::iota(test_samples_.begin(), test_samples_.end(), 0);
  test_ = std::move(data);
  test_every_ = every;
}

FederationRound Federation::next() {
  FederationRound round = rounds_->next();
  round.has_test_data = test_.has_value();
  if (!test_ || round.record.is_abandoned) return round;
  if (model().version() % test_every_ == 0 || ended())
    round.tested = evaluator_->evaluate(model().values(), test_samples_, *test_);
  return round;
}

FederationResult Federation::run(const std::function<void(const FederationRound&)>& on_round) {
  FederationResult result;
  while (!ended()) {
    result.rounds.push_back(next());
    if (on_round) on_round(result.rounds.back());
  }
  result.clients.assign(rounds_->records().begin(), rounds_->records().end());
  result.classes = rounds_->classes();
  result.by_client = evaluate_clients();
  return result;
}

std::vector<Evaluated> Federation::evaluate_clients() {
  std::vector<Evaluated> evaluated;
  if (clients_.held_out.total() == 0) return evaluated;
  for (std::int64_t client = 0; client < clients_.held_out.clients(); ++client)
    evaluated.push_back(evaluator_->evaluate(model().values(), clients_.held_out[client], data_));
  return evaluated;
}

}  // namespace gradwire
