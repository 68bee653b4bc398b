// Trains a ConvNet on Fashion-MNIST with any number of processes:
//     gradwire run -n 4 -- ./mnist [FOLDER_OF_THE_DATA_SET]
#include <exception>
#include <iostream>

#include <torch/torch.h>

#include "gradwire/data/fashion_mnist.h"
#include "gradwire/torch/init.h"
#include "gradwire/train/data_parallel/data_parallel.h"

struct NetImpl : torch::nn::Module {
  NetImpl()
      : conv1(register_module("conv1", torch::nn::Conv2d(1, 16, 3))),
        conv2(register_module("conv2", torch::nn::Conv2d(16, 32, 3))),
        fc1(register_module("fc1", torch::nn::Linear(32 * 5 * 5, 128))),
        fc2(register_module("fc2", torch::nn::Linear(128, 10))) {}

  torch::Tensor forward(torch::Tensor x) {
    x = torch::relu(torch::max_pool2d(conv1(x), 2));
    x = torch::relu(torch::max_pool2d(conv2(x), 2));
    x = torch::relu(fc1(x.flatten(1)));
    return torch::log_softmax(fc2(x), 1);
  }

  torch::nn::Conv2d conv1, conv2;
  torch::nn::Linear fc1, fc2;
};
TORCH_MODULE(Net);

void train(const char* folder) {
  const auto group = gradwire::init();
  const bool speaks = group->getRank() == 0;
  const auto data = gradwire::load_fashion_mnist(gradwire::Split::train, folder);
  gradwire::Sampler sampler({.samples = data.size(),
                             .batch_size = 128 / group->getSize(),
                             .rank = group->getRank(),
                             .world_size = group->getSize()});

  gradwire::DataParallel model(Net(), {.process_group = group});
  torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));

  for (int epoch = 0; epoch < 3; ++epoch) {
    sampler.start_epoch(epoch);
    for (std::int64_t step = 0; step < sampler.batches(); ++step) {
      const auto batch = data.batch(sampler.batch(step));
      optimizer.zero_grad();
      auto loss = torch::nll_loss(model(batch.inputs), batch.targets);
      loss.backward();
      optimizer.step();
      if (speaks && step % 100 == 0) {
        std::cout << "epoch " << epoch << "  step " << step << "  loss " << loss.item<double>()
                  << std::endl;
      }
    }
  }
  if (speaks) torch::save(model.module(), "mnist.pt");
  group->barrier()->wait();
}

int main(int argc, char** argv) {
  try {
    train(argc > 1 ? argv[1] : "");
  } catch (const std::exception& error) {  // It names the rank, the link and the remedy.
    std::cerr << error.what() << std::endl;
    return 1;
  }
}
