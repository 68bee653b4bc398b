#include "gradwire/train/await_parameters.h"

namespace gradwire {
namespace {

// Like autograd's modes: modules know nothing of what trains them, and call from within its
// forward.
thread_local BlockObserver* current = nullptr;

}  // namespace

BlockObserver* block_observer() {
  return current;
}

void await_parameters(const torch::nn::Module& block) {
  if (current != nullptr) current->before_block(block);
}

BlockScope::BlockScope(BlockObserver* observer) : before_(current) {
  current = observer;
}

BlockScope::~BlockScope() {
  current = before_;
}

}  // namespace gradwire
