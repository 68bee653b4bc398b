#include "gradwire/train/federated/federation.h"

#include <numeric>
#include <optional>
#include <span>
#include <utility>

#include "gradwire/base/cpu.h"
#include "gradwire/train/federated/federation_rounds.h"
#include "gradwire/train/federated/module_trainer.h"

namespace gradwire {
namespace {

int threads_of(const FederationPlan& plan, bool draws_random_numbers) {
  if (draws_random_numbers) return 1;
  return plan.threads > 0 ? plan.threads : usable_cores();
}

}  // namespace

/// FederationRounds whose clients are trained by ModuleTrainers.
class Federation::Impl {
 public:
  Impl(const FederationPlan& plan, DataSet data, HeldOut clients,
       const std::function<TrainableModule()>& make);

  void test_on(DataSet data, std::int64_t every);
  FederationRound next();
  FederationResult run(const std::function<void(const FederationRound&)>& on_round);
  FederationRounds& rounds() { return *rounds_; }

 private:
  /// The caller's operations use one thread, so that their sums do not depend on the cores.
  class OneThread {
   public:
    OneThread() : before_(at::get_num_threads()) { at::set_num_threads(1); }
    ~OneThread() { at::set_num_threads(before_); }
    OneThread(const OneThread&) = delete;
    OneThread& operator=(const OneThread&) = delete;

   private:
    int before_;
  };

  std::vector<Evaluated> evaluate_clients();

  OneThread one_thread_;
  DataSet data_;
  HeldOut clients_;
  std::unique_ptr<ModuleTrainer> evaluator_;
  std::optional<FederationRounds> rounds_;
  std::optional<DataSet> test_;
  std::vector<std::int64_t> test_samples_;
  std::int64_t test_every_ = 1;
};

Federation::Impl::Impl(const FederationPlan& plan, DataSet data, HeldOut clients,
                       const std::function<TrainableModule()>& make)
    : data_(std::move(data)), clients_(std::move(clients)) {
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
  rounds_.emplace(plan, initial, training_samples(clients_), std::move(trainers));
  evaluator_ = trainer(std::move(first));
}

void Federation::Impl::test_on(DataSet data, std::int64_t every) {
  test_samples_.resize(static_cast<std::size_t>(data.size));
  std::iota(test_samples_.begin(), test_samples_.end(), 0);
  test_ = std::move(data);
  test_every_ = every;
}

FederationRound Federation::Impl::next() {
  FederationRound round = rounds_->next();
  round.has_test_data = test_.has_value();
  if (!test_ || round.record.is_abandoned) return round;
  const GlobalModel& model = rounds_->model();
  if (model.version() % test_every_ == 0 || rounds_->ended())
    round.tested = evaluator_->evaluate(model.values(), test_samples_, *test_);
  return round;
}

FederationResult Federation::Impl::run(
    const std::function<void(const FederationRound&)>& on_round) {
  FederationResult result;
  while (!rounds_->ended()) {
    result.rounds.push_back(next());
    if (on_round) on_round(result.rounds.back());
  }
  result.clients.assign(rounds_->records().begin(), rounds_->records().end());
  result.classes = rounds_->classes();
  result.by_client = evaluate_clients();
  return result;
}

std::vector<Evaluated> Federation::Impl::evaluate_clients() {
  std::vector<Evaluated> evaluated;
  if (clients_.held_out.total() == 0) return evaluated;
  const std::span<const float> model = rounds_->model().values();
  for (std::int64_t client = 0; client < clients_.held_out.clients(); ++client)
    evaluated.push_back(evaluator_->evaluate(model, clients_.held_out[client], data_));
  return evaluated;
}

// --- Federation ---

Federation::Federation(const FederationPlan& plan, DataSet data, HeldOut clients,
                       const std::function<TrainableModule()>& make)
    : impl_(std::make_unique<Impl>(plan, std::move(data), std::move(clients), make)) {}
Federation::~Federation() = default;
Federation::Federation(Federation&&) noexcept = default;

void Federation::test_on(DataSet data, std::int64_t every) {
  impl_->test_on(std::move(data), every);
}

FederationRound Federation::next() {
  return impl_->next();
}

FederationResult Federation::run(const std::function<void(const FederationRound&)>& on_round) {
  return impl_->run(on_round);
}

bool Federation::ended() const {
  return impl_->rounds().ended();
}

const std::vector<NamedTensor>& Federation::tensors() const {
  return impl_->rounds().model().tensors();
}

int Federation::largest_sum_bits() const {
  return impl_->rounds().largest_sum_bits();
}

void Federation::save(const std::filesystem::path& path) {
  impl_->rounds().save(path);
}

void Federation::load(const std::filesystem::path& path) {
  impl_->rounds().load(path);
}

}  // namespace gradwire
