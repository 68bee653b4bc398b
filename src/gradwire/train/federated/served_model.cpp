#include "gradwire/train/federated/served_model.h"

#include <charconv>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "gradwire/base/check.h"
#include "gradwire/base/error.h"
#include "gradwire/base/file.h"
#include "gradwire/base/refuse.h"
#include "gradwire/train/checkpoint/safetensors.h"
#include "gradwire/train/federated/run_state.h"

namespace gradwire {
namespace {

using Json = nlohmann::json;

/// Versions to which clients get differences: the current one and those before.
constexpr std::size_t kKeptVersions = 4;
/// Memory of a client for each element: its model, parameters, gradient, update and its rotation,
/// integers of at most 8 bytes, and two states of an optimizer.
constexpr std::int64_t kBytesPerElement = 36;
/// The number of the last round that has begun: it may not begin again, whatever happens.
constexpr const char* kBegun = "begun_round";

std::int64_t begun_in(const std::filesystem::path& folder) {
  std::int64_t number = 0;
  const auto text = read_file(folder / kBegun);
  if (text) std::from_chars(text->data(), text->data() + text->size(), number);
  return number;
}

/// Adds to an error of a file, such as that of a full disk, how to go on.
void with_remedy(const std::function<void()>& write) {
  try {
    write();
  } catch (const Exception& error) {
    if (error.kind() != ErrorKind::system) throw;
    throw Exception(error.kind(),
                    fmt::format("{}; free some space, then go on with --resume", error.what()));
  }
}

double sum_over(const federated::ClientLedger& ledger, double federated::ClientRecord::*bytes) {
  double sum = 0;
  for (const auto& [id, record] : ledger) sum += record.*bytes;
  return sum;
}

}  // namespace

ServedModel::ServedModel(const FederationPlan& plan, const FederatedTensors& initial,
                         Options options)
    : plan_(plan),
      options_(std::move(options)),
      model_(initial.parameters, initial.averaged, server_options(plan)),
      proximal_{.mu = plan.proximal},
      begun_(begun_in(options_.folder)) {
  keep(0);
}

std::int64_t ServedModel::resume() {
  const Json run = load_checkpoint(model_, options_.folder / kCheckpoint, plan_.configuration);
  proximal_ = proximal_of(run.at("proximal"));
  for (const Json& one : run.at("clients")) ledger_[one.at(0)] = client_record_of(one.at(1));
  const std::int64_t last = run.at("begun");
  begun_ = std::max(last, begun_);
  kept_.clear();
  keep(run.at("name"));
  return last;
}

/// The current values are of this version; computes what clients may get of them.
void ServedModel::keep(std::int64_t version) {
  kept_.push_front({version, sent_values(plan_, model_)});
  if (kept_.size() > kKeptVersions) kept_.pop_back();
  const std::vector<float>& values = kept_.front().values;
  digest_ = federated::digest_of_model(description(), values);
  whole_ = federated::Blob::of(federated::model_bytes(values, type()));
  differences_.clear();
  for (const Kept& base : kept_) {
    auto difference = federated::model_difference(values, base.values, type());
    if (difference.size() < whole_.size)
      differences_[base.version] = federated::Blob::of(std::move(difference));
  }
}

// --- rounds ---

std::string ServedModel::description() {
  federated::ModelDescription description{.configuration = options_.configuration};
  for (const auto& [name, tensor] : model_.tensors())
    description.tensors.push_back({name, tensor.sizes().vec()});
  std::string text = to_json(description);
  if (text.size() > federated::kMaxTextBytes)
    refuse("the names of {} tensors have {} bytes, and at most {} can be sent",
           description.tensors.size(), text.size(), federated::kMaxTextBytes);
  return text;
}

federated::ClientPlan ServedModel::client_plan() const {
  const bool draws = plan_.round.selection == federated::Selection::proportional;
  return {.epochs = plan_.local.epochs,
          .batch_size = plan_.local.batch_size,
          .optimizer = options_.optimizer,
          .proximal = proximal_.mu,
          .order_seed = local_seed(plan_),
          .partial = plan_.partial,
          .update = quantizer_->options(),
          .range = quantizer_->range(),
          .round_seed = quantizer_->round_seed(),
          .rounding_seed = server_options(plan_).seed,
          .is_bf16 = plan_.sends_bf16,
          .draws = draws ? plan_.round.use : 0,
          .model = digest_};
}

federated::ServerModel::Work ServedModel::begin(std::int64_t round) {
  note_begun(round);
  quantizer_.emplace(model_.quantizer(round));
  return {.version = kept_.front().version,
          .plan = to_json(client_plan()),
          .shape = {quantizer_->elements(), federated::Metrics::kElements},
          .update_bits = model_.update_bits()};
}

/// Clients that have begun a round refuse to take part in it again. Once one has begun, there is a
/// checkpoint to go on from.
void ServedModel::note_begun(std::int64_t round) {
  with_remedy([&] {
    if (!std::filesystem::exists(options_.folder / kCheckpoint)) save();
    begun_ = round;
    write_file(options_.folder / kBegun, fmt::format("{}\n", round));
  });
}

federated::ServerModel::Demand ServedModel::demand(std::int64_t samples) {
  return {.memory_bytes = kBytesPerElement * std::ssize(model_.values()),
          .steps = steps_of(plan_.local, samples)};
}

federated::ServerModel::Bytes ServedModel::bytes_for(std::int64_t version) {
  const auto found = differences_.find(version);
  if (found == differences_.end()) return {-1, whole_};
  return {version, found->second};
}

void ServedModel::on_ended(const federated::EndedRound& round) {
  using federated::ClientRecord;
  FederationRound done{.record = round.record, .proximal = proximal_.mu};
  for (const auto& [bytes, all] : {std::pair{&ClientRecord::up_bytes, &done.up_bytes},
                                   std::pair{&ClientRecord::down_bytes, &done.down_bytes}})
    *all = sum_over(round.ledger, bytes) - sum_over(ledger_, bytes);
  if (round.sum != nullptr) {
    done.metrics = model_.apply(*round.sum, round.weight, *quantizer_);
    if (plan_.adapts_proximal)
      proximal_.observe(done.metrics.training_loss / static_cast<double>(done.metrics.clients));
    keep(round.record.number);
  }
  ledger_ = round.ledger;
  with_remedy([&] {
    if (options_.on_round) options_.on_round(done);
    if (++unsaved_ >= options_.checkpoint_every || is_complete()) save();
    if (is_complete() && options_.on_complete) options_.on_complete();
  });
}

void ServedModel::on_stop() {
  with_remedy([&] { save(); });
}

// --- files ---

void ServedModel::save() {
  Json clients = Json::array();
  for (const auto& [id, record] : ledger_) clients.push_back({id, to_json(record)});
  Json run = {{"begun", begun_},
              {"name", kept_.front().version},
              {"proximal", to_json(proximal_)},
              {"clients", std::move(clients)}};
  save_checkpoint(model_, options_.folder / kCheckpoint, std::move(run), plan_.configuration);
  unsaved_ = 0;
}

void ServedModel::write_model() const {
  save_safetensors(options_.folder / kModel, model_.tensors());
}

}  // namespace gradwire
