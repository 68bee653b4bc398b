#include "gradwire/train/activation/await_parameters.h"

namespace gradwire {
namespace {

// Thread-local like autograd's modes: modules run within the trainer's forward but do not know the
// trainer.
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
