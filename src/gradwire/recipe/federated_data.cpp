#include "gradwire/recipe/federated_data.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "gradwire/base/random.h"
#include "gradwire/base/refuse.h"
#include "gradwire/data/synthetic_clients.h"
#include "gradwire/recipe/batch_stream.h"
#include "gradwire/train/federated/federated_client.h"
#include "gradwire/train/federated/federation_rounds.h"

namespace gradwire::recipe {
namespace {

constexpr std::uint64_t kPartitionSeed = 11, kHeldOutSeed = 12;

std::vector<std::int64_t> labels_of(const DataSet& data) {
  constexpr std::int64_t kAtOnce = 4096;
  std::vector<std::int64_t> labels;
  for (std::int64_t at = 0; at < data.size; at += kAtOnce) {
    SampledBatch part;
    part.samples.resize(static_cast<std::size_t>(std::min(kAtOnce, data.size - at)));
    std::iota(part.samples.begin(), part.samples.end(), at);
    const torch::Tensor targets = data.batch(part).targets;
    const auto* const values = targets.const_data_ptr<std::int64_t>();
    labels.insert(labels.end(), values, values + targets.numel());
  }
  return labels;
}

/// The samples of `data` with these numbers.
DataSet selected(const DataSet& data, std::vector<std::int64_t> samples) {
  const auto size = std::ssize(samples);
  return {.size = size, .batch = [data, samples = std::move(samples)](const SampledBatch& sampled) {
            SampledBatch whole = sampled;
            for (std::int64_t& one : whole.samples) one = samples[static_cast<std::size_t>(one)];
            return data.batch(whole);
          }};
}

DividedData divide_synthetic(const FederatedConfig& config) {
  SyntheticData made = make_synthetic_clients({.alpha = config.synthetic.alpha,
                                               .beta = config.synthetic.beta,
                                               .clients = config.partition.clients,
                                               .seed = config.synthetic.seed});
  HeldOut clients =
      hold_out(made.clients, config.partition.held_out, mixed_seed({config.seed, kHeldOutSeed}));
  DataSet data = make_data_set(std::move(made));
  std::vector<std::int64_t> tested;
  for (std::int64_t client = 0; client < clients.held_out.clients(); ++client) {
    const auto own = clients.held_out[client];
    tested.insert(tested.end(), own.begin(), own.end());
  }
  std::optional<DataSet> test;
  if (!tested.empty()) test = selected(data, std::move(tested));
  return {std::move(data), std::move(clients), std::move(test)};
}

}  // namespace

DividedData divide(const FederatedConfig& config) {
  if (config.synthetic.enabled) return divide_synthetic(config);
  DataSet data = load_data(config.data, Split::train);
  const PartitionConfig& how = config.partition;
  if (config.data.name == "text" && how.kind != "iid")
    refuse("partition.kind \"{}\" needs samples with classes, which text does not have", how.kind);
  const std::vector<std::int64_t> labels =
      config.data.name == "text" ? std::vector<std::int64_t>(static_cast<std::size_t>(data.size))
                                 : labels_of(data);
  const ClientSamples samples =
      partition(labels, {.kind = how.kind,
                         .clients = how.clients,
                         .shards = how.shards,
                         .alpha = how.alpha,
                         .classes = how.classes,
                         .seed = mixed_seed({config.seed, kPartitionSeed})});
  HeldOut clients = hold_out(samples, how.held_out, mixed_seed({config.seed, kHeldOutSeed}));
  return {std::move(data), std::move(clients), load_data(config.data, Split::test)};
}

std::vector<std::int64_t> samples_of_clients(const FederatedConfig& config) {
  const std::int64_t clients = config.partition.clients;
  if (!config.synthetic.enabled && clients > load_data(config.data, Split::train).size)
    return std::vector<std::int64_t>(static_cast<std::size_t>(clients), 1);
  return training_samples(divide(config).clients);
}

ClientData part_of(const FederatedConfig& config, std::int64_t part) {
  DividedData divided = divide(config);
  const std::int64_t clients = divided.clients.train.clients();
  if (part < 0 || part >= clients) refuse("there are parts 1 to {}, and not {}", clients, part + 1);
  ClientData one{.data = std::move(divided.data), .own = {}};
  one.own.train.add(divided.clients.train[part]);
  one.own.held_out.add(divided.clients.held_out[part]);
  return one;
}

ClientData whole_data(const FederatedConfig& config) {
  if (config.synthetic.enabled)
    refuse("synthetic data are made for several clients: choose one of them by its part");
  DataSet data = load_data(config.data, Split::train);
  HeldOut own =
      one_client(data, config.partition.held_out, mixed_seed({config.seed, kHeldOutSeed}));
  return {std::move(data), std::move(own)};
}

}  // namespace gradwire::recipe
