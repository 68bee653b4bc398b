// Sparse logistic regression by Hogwild!: threads that share the weights. Trains with one thread
// and with several in turn, five times each by default, and prints the medians.
//
//   sparse_logistic [THREADS=2] [RUNS=5] [BATCH=64]

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <exception>
#include <iostream>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <torch/torch.h>

#include "gradwire/train/hogwild/hogwild.h"

namespace {

constexpr std::int64_t kFeatures = 100'000, kPerSample = 50;
constexpr std::int64_t kTrain = 400'000, kTest = 50'000, kEpochs = 2;

/// The sum of the weights of the features that a sample has.
struct LogisticImpl : torch::nn::Module {
  LogisticImpl() {
    const auto options =
        torch::nn::EmbeddingBagOptions(kFeatures, 1).mode(torch::kSum).sparse(true);
    weights = register_module("weights", torch::nn::EmbeddingBag(options));
    torch::nn::init::zeros_(weights->weight);
    bias = register_parameter("bias", torch::zeros({1}));
  }
  torch::Tensor forward(const torch::Tensor& features) {
    return weights->forward(features).squeeze(1) + bias;
  }
  torch::nn::EmbeddingBag weights{nullptr};
  torch::Tensor bias;
};
TORCH_MODULE(Logistic);

struct Samples {
  torch::Tensor features;  ///< samples x kPerSample: indices of features, some far more common.
  torch::Tensor labels;    ///< 0 or 1.

  torch::Tensor loss(Logistic& model, std::int64_t begin, std::int64_t count) const {
    return torch::binary_cross_entropy_with_logits(model->forward(features.narrow(0, begin, count)),
                                                   labels.narrow(0, begin, count));
  }
};

/// Labels are drawn with the probabilities of a logistic model of random weights.
Samples make_samples(std::int64_t count, std::uint64_t seed) {
  std::mt19937_64 truth_random(1), random(seed);
  std::normal_distribution<float> normal;
  std::uniform_real_distribution<float> uniform;
  std::vector<float> truth(kFeatures);
  for (float& weight : truth) weight = 0.5f * normal(truth_random);
  Samples samples{torch::empty({count, kPerSample}, torch::kInt64), torch::empty({count})};
  auto* feature = samples.features.data_ptr<std::int64_t>();
  for (std::int64_t i = 0; i < count; ++i) {
    float logit = 0;
    for (std::int64_t k = 0; k < kPerSample; ++k) {
      const float u = uniform(random);
      *feature =
          std::min<std::int64_t>(static_cast<std::int64_t>(u * u * kFeatures), kFeatures - 1);
      logit += truth[static_cast<std::size_t>(*feature++)];
    }
    samples.labels.data_ptr<float>()[i] = uniform(random) < 1 / (1 + std::exp(-logit)) ? 1 : 0;
  }
  return samples;
}

gradwire::OptimizerFactory sgd(std::int64_t batch) {
  const double rate = static_cast<double>(batch) / 32;  // A step has the mean of a batch.
  return [rate](std::vector<torch::Tensor> parameters) {
    return std::make_unique<torch::optim::SGD>(std::move(parameters), rate);
  };
}

struct Run {
  double samples_per_second = 0, loss = 0, lost_share = 0;
  double cpu_us = 0;  ///< CPU time of a sample.
};

Run train(const Samples& train, const Samples& test, int threads, std::int64_t batch) {
  Logistic model;
  std::atomic<std::int64_t> next = 0;
  constexpr std::int64_t kTotal = kEpochs * kTrain;
  const auto begin = std::chrono::steady_clock::now();
  const std::clock_t cpu_begin = std::clock();
  const auto result = gradwire::hogwild(
      model, [] { return Logistic(); }, {.optimizer = sgd(batch), .threads = threads},
      [&](Logistic& mine, gradwire::HogwildThread& thread) {
        for (std::int64_t at; (at = next.fetch_add(batch)) < kTotal;) {
          const std::int64_t first = at % kTrain;
          train.loss(mine, first, std::min(batch, kTrain - first)).backward();
          thread.step();
        }
      });
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  const double cpu_us = 1e6 * static_cast<double>(std::clock() - cpu_begin) / CLOCKS_PER_SEC;
  const torch::NoGradGuard no_grad;
  return {static_cast<double>(kTotal) / took.count(), test.loss(model, 0, kTest).item<double>(),
          result.lost_updates() / static_cast<double>(result.updates), cpu_us / kTotal};
}

double median_of(const std::vector<Run>& runs, double Run::*figure) {
  std::vector<double> values;
  for (const Run& run : runs) values.push_back(run.*figure);
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

void print(const std::string& name, const std::vector<Run>& runs) {
  std::cout << name << ": " << median_of(runs, &Run::samples_per_second) << " samples/s, loss "
            << median_of(runs, &Run::loss) << ", updates lost "
            << 1e6 * median_of(runs, &Run::lost_share) << " in a million, CPU "
            << median_of(runs, &Run::cpu_us) << " us a sample (medians)\n";
}

void compare(int threads, int runs, std::int64_t batch) {
  const Samples training = make_samples(kTrain, 2), test = make_samples(kTest, 3);
  std::vector<Run> one, several;
  for (int i = 0; i < runs; ++i) {
    one.push_back(train(training, test, 1, batch));
    several.push_back(train(training, test, threads, batch));
    std::cout << "run " << i + 1 << ": " << one.back().samples_per_second << " and "
              << several.back().samples_per_second << " samples/s, loss " << one.back().loss
              << " and " << several.back().loss << std::endl;
  }
  print("1 thread", one);
  print(std::to_string(threads) + " threads", several);
  std::cout << "ratio "
            << median_of(several, &Run::samples_per_second) /
                   median_of(one, &Run::samples_per_second)
            << ", loss " << 100 * (median_of(several, &Run::loss) / median_of(one, &Run::loss) - 1)
            << " % higher\n";
}

}  // namespace

int main(int argc, char** argv) {
  const auto argument = [&](int index, int otherwise) {
    return argc > index ? std::stoi(argv[index]) : otherwise;
  };
  try {
    compare(argument(1, 2), argument(2, 5), argument(3, 64));
    return 0;
  } catch (const std::exception& error) {
    std::cerr << "sparse_logistic: " << error.what() << '\n';
    return 1;
  }
}
