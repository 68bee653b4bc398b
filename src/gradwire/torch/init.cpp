#include "gradwire/torch/init.h"

#include "gradwire/bootstrap/job_secret.h"
#include "gradwire/torch/process_group.h"
#include "gradwire/torch/store.h"
#include "gradwire/torch/vector_math.h"

namespace gradwire {

c10::intrusive_ptr<c10d::ProcessGroup> init(const CommunicatorOptions& options) {
  return init(Job::from_environment(), options);
}

c10::intrusive_ptr<c10d::ProcessGroup> init(const Job& job, const CommunicatorOptions& options) {
  initialize_vector_math();
  if (!job.launcher_store || job.world_size == 1) {
    return make_process_group(Communicator::connect(job, options));
  }
  warn_of_open_store(job);
  const auto timeout = std::chrono::ceil<std::chrono::milliseconds>(options.rendezvous_timeout);
  auto store = open_launcher_store(job, timeout);
  auto communicator = Communicator::connect(job, options, std::make_shared<C10dStore>(store));
  return make_process_group(std::move(communicator), std::move(store));
}

}  // namespace gradwire
