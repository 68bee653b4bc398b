#include "gradwire/torch/coalesced_works.h"

#include <algorithm>
#include <utility>

namespace gradwire {

void CoalescedWorks::start() {
  List forgotten;  // Frees its tensors after the lock is released.
  const std::lock_guard lock(mutex_);
  std::swap(lists_[std::this_thread::get_id()], forgotten);
}

void CoalescedWorks::add(const WorkPointer& work) {
  List* list = nullptr;
  {
    const std::lock_guard lock(mutex_);
    const auto found = lists_.find(std::this_thread::get_id());
    if (found == lists_.end()) return;
    list = &found->second;
  }
  list->works.push_back(work);
  if (list->works.size() < list->clean_at) return;
  std::erase_if(list->works, [](const WorkPointer& each) {
    if (!each->isCompleted() || !each->isSuccess()) return false;
    each->synchronize();  // The current stream waits for a device's results.
    return true;
  });
  list->clean_at = std::max(kCleanAt, 2 * list->works.size());
}

std::vector<CoalescedWorks::WorkPointer> CoalescedWorks::end() {
  const std::lock_guard lock(mutex_);
  auto ended = lists_.extract(std::this_thread::get_id());
  return ended.empty() ? std::vector<WorkPointer>() : std::move(ended.mapped().works);
}

}  // namespace gradwire
