// A program that uses gradwire's collectives without libtorch.
#include <cstdio>
#include <vector>

#include "gradwire/comm/communicator.h"

int main() {
  const auto communicator = gradwire::Communicator::connect(gradwire::bootstrap::Job{});
  std::vector<float> data{1.0f, 2.0f, 3.0f};
  communicator->all_reduce({data.data(), data.size()}, gradwire::ReduceOp::sum).wait();
  std::printf("%d of 1: %g %g %g\n", communicator->size(), data[0], data[1], data[2]);
}
