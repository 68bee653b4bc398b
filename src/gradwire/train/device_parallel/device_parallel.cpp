#include "gradwire/train/device_parallel/device_parallel.h"

#include <algorithm>
#include <exception>
#include <mutex>
#include <thread>

#include <c10/core/DeviceGuard.h>

#include "gradwire/base/error.h"
#include "gradwire/base/refuse.h"
#include "gradwire/comm/devices/device_communicators.h"
#include "gradwire/torch/hybrid_process_group.h"
#include "gradwire/torch/init.h"
#include "gradwire/torch/process_group.h"

namespace gradwire {
namespace {

/// Restores the number of torch threads, which the process has beside that of each thread.
class TorchThreads {
 public:
  TorchThreads() : before_(at::get_num_threads()) {}
  TorchThreads(const TorchThreads&) = delete;
  ~TorchThreads() { at::set_num_threads(before_); }

  int for_each_of(int replicas) const { return std::max(1, before_ / replicas); }

 private:
  int before_;
};

/// The error of the thread that failed first; those of the others follow from it.
class FirstFailure {
 public:
  void set(std::exception_ptr error) {
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = std::move(error);
  }
  void rethrow() const {
    if (error_) std::rethrow_exception(error_);
  }

 private:
  std::mutex mutex_;
  std::exception_ptr error_;
};

std::shared_ptr<Communicator> communicator_between(const ProcessGroup& between) {
  if (!between) return nullptr;
  auto communicator = communicator_of(*between);
  if (!communicator)
    throw Exception(ErrorKind::unsupported,
                    "several devices in one process need a process group of gradwire between "
                    "processes: make it with gradwire::init()");
  refuse_inside(*between, "several devices in one process");
  return communicator;
}

}  // namespace

DeviceGroup::DeviceGroup(const ProcessGroup& between, std::vector<torch::Device> devices)
    : devices_(std::move(devices)) {
  if (devices_.empty()) refuse("devices is empty; name one for each replica, such as \"cpu\"");
  initialize_vector_math();
  for (auto& communicator : device_communicators(communicator_between(between), size()))
    groups_.push_back(make_process_group(std::move(communicator)));
}

void DeviceGroup::run(const std::function<void(int index)>& work) const {
  const TorchThreads threads;
  FirstFailure failure;
  const auto run_one = [&](int index) {
    const auto fail = [&](const char* reason) {
      failure.set(std::current_exception());
      abort_group(*group(index), reason);
    };
    try {
      at::set_num_threads(threads.for_each_of(size()));
      const c10::DeviceGuard current(device(index));
      work(index);
    } catch (const std::exception& error) {
      fail(error.what());
    } catch (...) {
      fail("an exception of an unknown type");
    }
  };
  {
    std::vector<std::jthread> running;
    for (int index = 0; index < size(); ++index) running.emplace_back(run_one, index);
  }
  failure.rethrow();
}

}  // namespace gradwire
