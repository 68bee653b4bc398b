#include "gradwire/train/await_parameters.h"

#include "gradwire/train/bucket_steps.h"

namespace gradwire {
namespace {

// Like autograd's modes: modules know nothing of what trains them, and call from within its
// forward.
thread_local BucketSteps* current = nullptr;

}  // namespace

void await_parameters(const torch::nn::Module& block) {
  if (current != nullptr) current->await(block);
}

AwaitScope::AwaitScope(BucketSteps* steps) : before_(current) {
  current = steps;
}

AwaitScope::~AwaitScope() {
  current = before_;
}

}  // namespace gradwire
