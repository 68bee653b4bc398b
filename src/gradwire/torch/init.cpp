#include "gradwire/torch/init.h"

#include <ATen/ATen.h>

#include "gradwire/bootstrap/job_secret.h"
#include "gradwire/torch/process_group.h"
#include "gradwire/torch/store.h"

namespace gradwire {

void initialize_vector_math() {
  // The static's initialization makes concurrent callers wait for the first.
  [[maybe_unused]] static const bool used = at::ones({8}, at::kFloat).exp().defined();
}

c10::intrusive_ptr<c10d::ProcessGroup> init(const CommunicatorOptions& options) {
  return init(bootstrap::Job::from_environment(), options);
}

c10::intrusive_ptr<c10d::ProcessGroup> init(const bootstrap::Job& job,
                                            const CommunicatorOptions& options) {
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
