// A libtorch program that averages a tensor through gradwire.
#include <cstdio>

#include <ATen/ATen.h>

#include "gradwire/comm/communicator.h"

int main() {
  const auto communicator = gradwire::Communicator::connect(gradwire::bootstrap::Job{});
  at::Tensor data = at::arange(4, at::kFloat);
  const auto count = static_cast<std::size_t>(data.numel());
  communicator->all_reduce({data.data_ptr(), count}, gradwire::ReduceOp::mean).wait();
  std::printf("sum %g\n", data.sum().item<double>());
}
