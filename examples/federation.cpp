// Simulates federated learning of a ConvNet on Fashion-MNIST, divided among 100 clients:
//     ./federation [ROUNDS [FOLDER_OF_THE_DATA_SET]]
#include "gradwire/train/federated/federation.h"

#include <cmath>
#include <cstdint>
#include <exception>
#include <iomanip>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include <torch/torch.h>

#include "gradwire/data/fashion_mnist.h"
#include "gradwire/train/checkpoint/safetensors.h"

struct NetImpl : torch::nn::Module {
  NetImpl()
      : conv(register_module("conv", torch::nn::Conv2d(1, 8, 5))),
        fc1(register_module("fc1", torch::nn::Linear(8 * 6 * 6, 32))),
        fc2(register_module("fc2", torch::nn::Linear(32, 10))) {}

  torch::Tensor forward(torch::Tensor x) {
    x = torch::relu(torch::max_pool2d(conv(x), 4));
    return torch::log_softmax(fc2(torch::relu(fc1(x.flatten(1)))), 1);
  }

  torch::nn::Conv2d conv;
  torch::nn::Linear fc1, fc2;
};
TORCH_MODULE(Net);

gradwire::TrainableModule make_net() {
  torch::manual_seed(1);
  Net net;
  return {net.ptr(), [net](const torch::Tensor& inputs) mutable { return net->forward(inputs); },
          [](const torch::Tensor& outputs, const torch::Tensor& targets) {
            return torch::nll_loss(outputs, targets);
          }};
}

std::unique_ptr<torch::optim::Optimizer> sgd(const std::vector<torch::Tensor>& parameters) {
  return std::make_unique<torch::optim::SGD>(parameters, torch::optim::SGDOptions(0.05));
}

void simulate(std::int64_t rounds, const char* folder) {
  const auto data = gradwire::load_fashion_mnist(gradwire::Split::train, folder);
  const auto test = gradwire::load_fashion_mnist(gradwire::Split::test, folder);
  const auto clients = gradwire::partition(
      {data.labels.const_data_ptr<std::int64_t>(), static_cast<std::size_t>(data.size())},
      {.kind = "dirichlet", .clients = 100, .alpha = 0.5});

  // Each round asks 13 clients, and uses the first 10 that are ready.
  const gradwire::FederationPlan plan{.rounds = rounds,
                                      .round = {.ask = 13, .use = 10, .least = 5},
                                      .local = {.batch_size = 10, .optimizer = sgd},
                                      .server = {.update = {.bits = 8, .rotate = true}},
                                      .devices = {.drop = 0.08}};
  gradwire::Federation federation(plan, gradwire::make_data_set(data),
                                  gradwire::hold_out(clients, 0.2, 1), make_net);
  federation.test_on(gradwire::make_data_set(test));
  std::cout << std::fixed << std::setprecision(2);
  const auto result = federation.run([](const gradwire::FederationRound& round) {
    std::cout << "round " << round.record.number << "  used " << round.record.used << " of "
              << round.record.asked << "  up " << std::llround(round.up_bytes) << " bytes";
    if (round.tested) std::cout << "  accuracy " << 100 * round.tested->accuracy() << " %";
    std::cout << std::endl;
  });

  std::vector<double> accuracies;
  for (const gradwire::Evaluated& one : result.by_client)
    if (one.samples > 0) accuracies.push_back(one.accuracy());
  std::cout << "fairness: Jain's index of how often clients counted "
            << gradwire::federated::jain_index(result.clients) << ", accuracy of the worst tenth "
            << 100 * gradwire::federated::worst_tenth(accuracies) << " %" << std::endl;
  gradwire::save_safetensors("federation.safetensors", federation.tensors());
}

int main(int argc, char** argv) {
  try {
    simulate(argc > 1 ? std::stoll(argv[1]) : 20, argc > 2 ? argv[2] : "");
  } catch (const std::exception& error) {  // It says what to do.
    std::cerr << error.what() << std::endl;
    return 1;
  }
}
