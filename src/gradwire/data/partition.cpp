#include "gradwire/data/partition.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <string_view>

#include "gradwire/base/random.h"
#include "gradwire/base/refuse.h"
#include "gradwire/base/shuffle.h"
#include "gradwire/base/suggest.h"
#include "gradwire/data/draw.h"

namespace gradwire {
namespace {

using Lists = std::vector<std::vector<std::int64_t>>;

constexpr std::array<std::string_view, 5> kKinds{"iid", "shards", "dirichlet", "power_law",
                                                 "classes"};

void check(const PartitionOptions& options, std::size_t samples) {
  if (std::ranges::count(kKinds, options.kind) == 0) {
    refuse(unknown_name("partition", options.kind, kKinds));
  }
  if (options.clients < 1 || options.shards < 1 || options.classes < 0) {
    refuse("partition: {} clients, {} shards and {} classes: each must be positive",
           options.clients, options.shards, options.classes);
  }
  if (!(options.alpha > 0) || !(options.deviation >= 0) || options.deviation > 100) {
    refuse(
        "partition: alpha is {} and deviation {}; alpha must be positive, and deviation from 0 "
        "to 100",
        options.alpha, options.deviation);
  }
  if (static_cast<std::size_t>(options.clients) > samples) {
    refuse("partition: {} clients share {} samples, and each needs one; use at most {} clients",
           options.clients, samples, samples);
  }
}

/// The bounds of part `i` of `parts` whose sizes differ by at most 1.
std::size_t part_begin(std::size_t samples, std::size_t i, std::size_t parts) {
  return samples / parts * i + std::min(i, samples % parts);
}

std::vector<std::int64_t> numbers_to(std::size_t count) {
  std::vector<std::int64_t> numbers(count);
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

/// In random order.
Lists samples_by_label(std::span<const std::int64_t> labels, Random& random) {
  std::map<std::int64_t, std::vector<std::int64_t>> found;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    found[labels[i]].push_back(static_cast<std::int64_t>(i));
  }
  Lists classes;
  for (auto& [label, samples] : found) {
    shuffle(samples, random);
    classes.push_back(std::move(samples));
  }
  return classes;
}

Lists by_shards(std::span<const std::int64_t> labels, const PartitionOptions& options,
                Random& random) {
  const auto clients = static_cast<std::size_t>(options.clients);
  const auto each = static_cast<std::size_t>(options.shards);
  if (each > labels.size() / clients) {
    refuse("partition: {} clients with {} shards each need {} samples, but there are {}; use fewer",
           clients, each, clients * each, labels.size());
  }
  auto sorted = numbers_to(labels.size());
  std::ranges::stable_sort(
      sorted, {}, [&](std::int64_t sample) { return labels[static_cast<std::size_t>(sample)]; });
  auto shards = numbers_to(clients * each);
  shuffle(shards, random);
  Lists lists(clients);
  for (std::size_t i = 0; i < shards.size(); ++i) {
    const auto shard = static_cast<std::size_t>(shards[i]);
    const auto begin = part_begin(sorted.size(), shard, shards.size());
    const auto end = part_begin(sorted.size(), shard + 1, shards.size());
    auto& list = lists[i / each];
    list.insert(list.end(), sorted.begin() + static_cast<std::ptrdiff_t>(begin),
                sorted.begin() + static_cast<std::ptrdiff_t>(end));
  }
  return lists;
}

/// Probabilities of classes, for one client.
class Mixture {
 public:
  Mixture(const Lists& classes, double alpha, std::size_t samples, Random& random) {
    for (const auto& left : classes) {
      const auto frequency = static_cast<double>(left.size()) / static_cast<double>(samples);
      logarithms_.push_back(draw_log_gamma(alpha * frequency, random));
    }
  }

  /// Weights the classes of which samples are `left`; the likeliest has 1.
  void weigh(const Lists& left) {
    double max = -std::numeric_limits<double>::infinity();
    for (std::size_t i = 0; i < left.size(); ++i) {
      if (!left[i].empty()) max = std::max(max, logarithms_[i]);
    }
    weights_.clear();
    for (std::size_t i = 0; i < left.size(); ++i) {
      weights_.push_back(left[i].empty() ? 0 : std::exp(logarithms_[i] - max));
    }
  }

  std::size_t draw(Random& random) const {
    double rest = random.unit() * std::accumulate(weights_.begin(), weights_.end(), 0.0);
    std::size_t last = 0;  // Rounding may leave a rest.
    for (std::size_t i = 0; i < weights_.size(); ++i) {
      if (weights_[i] == 0) continue;
      last = i;
      if (rest < weights_[i]) break;
      rest -= weights_[i];
    }
    return last;
  }

 private:
  std::vector<double> logarithms_, weights_;
};

Lists by_dirichlet(std::span<const std::int64_t> labels, const PartitionOptions& options,
                   Random& random) {
  const auto clients = static_cast<std::size_t>(options.clients);
  const Lists classes = samples_by_label(labels, random);
  auto left = classes;
  auto order = numbers_to(clients);  // Who is last gets what is left.
  shuffle(order, random);
  Lists lists(clients);
  for (const std::int64_t number : order) {
    const auto client = static_cast<std::size_t>(number);
    const auto size =
        part_begin(labels.size(), client + 1, clients) - part_begin(labels.size(), client, clients);
    Mixture mixture(classes, options.alpha, labels.size(), random);
    mixture.weigh(left);
    while (lists[client].size() < size) {
      auto& samples = left[mixture.draw(random)];
      lists[client].push_back(samples.back());
      samples.pop_back();
      if (samples.empty()) mixture.weigh(left);
    }
  }
  return lists;
}

/// Which clients share each class.
std::vector<std::vector<std::size_t>> clients_of_classes(const Lists& classes,
                                                         const PartitionOptions& options,
                                                         std::size_t each, Random& random) {
  std::vector<std::vector<std::size_t>> clients(classes.size());
  auto order = numbers_to(classes.size());
  const auto given = [&](std::int64_t i) { return clients[static_cast<std::size_t>(i)].size(); };
  for (std::size_t client = 0; client < static_cast<std::size_t>(options.clients); ++client) {
    shuffle(order, random);
    std::ranges::stable_sort(order, {}, given);
    for (std::size_t i = 0; i < each; ++i) {
      clients[static_cast<std::size_t>(order[i])].push_back(client);
    }
  }
  for (std::size_t i = 0; i < classes.size(); ++i) {
    if (clients[i].size() <= classes[i].size()) continue;
    refuse(
        "partition: {} clients share the {} samples of a class, and each needs one; use fewer "
        "clients or classes",
        clients[i].size(), classes[i].size());
  }
  return clients;
}

/// Gives each of `clients` a sample, and the others in proportion to their weights.
void share_out(const std::vector<std::int64_t>& samples, const std::vector<std::size_t>& clients,
               const std::vector<double>& weights, Lists& lists) {
  double total = 0;
  for (const std::size_t client : clients) total += weights[client];
  const auto spare = static_cast<double>(samples.size() - clients.size());
  double sum = 0;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < clients.size(); ++i) {
    sum += weights[clients[i]];
    const std::size_t end = i + 1 + static_cast<std::size_t>(spare * (sum / total));
    auto& list = lists[clients[i]];
    list.insert(list.end(), samples.begin() + static_cast<std::ptrdiff_t>(begin),
                samples.begin() + static_cast<std::ptrdiff_t>(end));
    begin = end;
  }
}

/// iid: one class of all samples; classes; power_law.
Lists by_class(const Lists& classes, const PartitionOptions& options, Random& random) {
  const auto each = static_cast<std::size_t>(std::max<std::int64_t>(options.classes, 1));
  if (each > classes.size()) {
    refuse("partition: classes is {}, but the samples have {} classes", each, classes.size());
  }
  const bool is_equal = options.kind != "power_law";
  std::vector<double> weights;
  for (std::int64_t i = 0; i < options.clients; ++i) {
    weights.push_back(is_equal ? 1 : std::exp(options.deviation * draw_gaussian(random)));
  }
  const auto clients = clients_of_classes(classes, options, each, random);
  Lists lists(static_cast<std::size_t>(options.clients));
  for (std::size_t i = 0; i < classes.size(); ++i) {
    share_out(classes[i], clients[i], weights, lists);
  }
  return lists;
}

Lists divided(std::span<const std::int64_t> labels, const PartitionOptions& options) {
  Random random(mixed_seed({options.seed, static_cast<std::uint64_t>(options.clients)}));
  if (options.kind == "shards") return by_shards(labels, options, random);
  if (options.kind == "dirichlet") return by_dirichlet(labels, options, random);
  if (options.kind == "classes" && options.classes == 0) {
    refuse("partition: kind \"classes\" needs \"classes\", how many a client has");
  }
  if (options.kind != "iid" && options.classes > 0) {
    return by_class(samples_by_label(labels, random), options, random);
  }
  Lists all{numbers_to(labels.size())};
  shuffle(all.front(), random);
  auto of_one_class = options;
  of_one_class.classes = 1;
  return by_class(all, of_one_class, random);
}

}  // namespace

void ClientSamples::add(std::span<const std::int64_t> samples) {
  samples_.insert(samples_.end(), samples.begin(), samples.end());
  begins_.push_back(samples_.size());
}

std::span<const std::int64_t> ClientSamples::operator[](std::int64_t client) const {
  const auto begin = begins_.at(static_cast<std::size_t>(client));
  return std::span(samples_).subspan(begin,
                                     begins_.at(static_cast<std::size_t>(client) + 1) - begin);
}

ClientSamples partition(std::span<const std::int64_t> labels, const PartitionOptions& options) {
  check(options, labels.size());
  ClientSamples clients;
  for (const auto& samples : divided(labels, options)) clients.add(samples);
  return clients;
}

HeldOut hold_out(const ClientSamples& clients, double share, std::uint64_t seed) {
  if (!(share >= 0 && share < 1)) refuse("the held-out share is {}; it must be in [0, 1)", share);
  HeldOut split;
  for (std::int64_t client = 0; client < clients.clients(); ++client) {
    const auto all = clients[client];
    std::vector<std::int64_t> samples(all.begin(), all.end());
    Random random(mixed_seed({seed, static_cast<std::uint64_t>(client)}));
    shuffle(samples, random);
    const auto wanted = std::llround(share * static_cast<double>(samples.size()));
    const auto most = std::max<std::int64_t>(static_cast<std::int64_t>(samples.size()) - 1, 0);
    const auto held = static_cast<std::size_t>(std::min<std::int64_t>(wanted, most));
    split.held_out.add(std::span(samples).first(held));
    split.train.add(std::span(samples).subspan(held));
  }
  return split;
}

}  // namespace gradwire
