// Trains 96 MiB of parameters with Adam in a process that may allocate MIB more memory than it
// starts with: limited_rank STAGE MIB. Exits with 3 and an error message if that is not enough.
#include <cstdio>
#include <fstream>
#include <string>

#include <sys/resource.h>
#include <unistd.h>

#include "gradwire/torch/init.h"
#include "gradwire/train/data_parallel/data_parallel.h"
#include "gradwire/train/zero/zero.h"
#include "tests/train/programs/ranks.h"

namespace {

void allow_more_bytes(std::size_t more) {
  std::size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  rlimit limit{};
  getrlimit(RLIMIT_AS, &limit);
  limit.rlim_cur = pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE)) + more;
  setrlimit(RLIMIT_AS, &limit);
}

torch::nn::Sequential deep_model() {
  torch::nn::Sequential model;
  for (int layer = 0; layer < 24; ++layer) {
    model->push_back(torch::nn::Linear(torch::nn::LinearOptions(1024, 1024).bias(false)));
    model->push_back(torch::nn::Tanh());
  }
  return model;
}

std::unique_ptr<torch::optim::Optimizer> make_adam(std::vector<torch::Tensor> parameters) {
  return std::make_unique<torch::optim::Adam>(std::move(parameters), 1e-3);
}

template <class Model>
void train(Model& model) {
  for (int step = 0; step < 2; ++step) {
    model(torch::ones({4, 1024})).square().mean().backward();
    model.step();
  }
  model.finish();
}

void run(const gradwire::ProcessGroup& group, int stage) {
  if (stage == 0) {
    gradwire::DataParallel model(deep_model(), {.process_group = group, .optimizer = make_adam});
    train(model);
  } else {
    gradwire::Zero model(deep_model(),
                         {.process_group = group, .stage = stage, .optimizer = make_adam});
    train(model);
  }
  group->barrier()->wait();
}

}  // namespace

int gradwire::test::limited_rank(int argc, char** argv) {
  if (argc != 3) return 2;
  at::set_num_threads(1);
  const auto group = gradwire::init();
  group->barrier()->wait();
  allow_more_bytes(std::stoul(argv[2]) << 20);
  try {
    run(group, std::stoi(argv[1]));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "stage %s: %s\n", argv[1], error.what());
    return 3;
  }
  return 0;
}
