#include <chrono>

#include "gradwire/cli/commands.h"
#include "gradwire/torch/store.h"

namespace gradwire::cli {

/// `gradwire bench` for jobs of torchrun: the rendezvous is in torchrun's store.
int torch_bench_command(int argc, char** argv) {
  return bench_with_store(
      argc, argv, [](const bootstrap::Job& job) -> std::shared_ptr<bootstrap::Store> {
        if (!job.launcher_store) return nullptr;
        return std::make_shared<C10dStore>(open_launcher_store(job, std::chrono::minutes(1)));
      });
}

}  // namespace gradwire::cli
