#include "gradwire/torch/group_backend.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "gradwire/base/clock.h"
#include "gradwire/base/refuse.h"
#include "gradwire/torch/releases.h"

namespace gradwire {
namespace {

/// Several operations as one, some of which are not a TensorWork.
class CoalescedWork final : public c10d::Work {
 public:
  CoalescedWork(int rank, std::vector<c10::intrusive_ptr<c10d::Work>> works)
      : c10d::Work(rank, c10d::OpType::COALESCED), works_(std::move(works)) {}

  bool isCompleted() override {
    return std::ranges::all_of(works_, [](const auto& work) { return work->isCompleted(); });
  }
  bool isSuccess() const override {
    return std::ranges::all_of(works_, [](const auto& work) { return work->isSuccess(); });
  }
  std::exception_ptr exception() const override {
    for (const auto& work : works_) {
      if (auto error = work->exception()) return error;
    }
    return nullptr;
  }
  std::vector<at::Tensor> result() override { return {}; }
  void synchronize() override {
    for (const auto& work : works_) work->synchronize();
  }
  bool wait(std::chrono::milliseconds timeout) override {
    for (const auto& work : works_) work->wait(timeout);
    return true;
  }

 private:
  std::vector<c10::intrusive_ptr<c10d::Work>> works_;
};

}  // namespace

GroupBackend::GroupBackend(std::shared_ptr<Communicator> communicator,
                           c10::intrusive_ptr<GroupOptions> options, int lane)
    : c10d::Backend(communicator->rank(), communicator->size()),
      lane_(lane),
      communicator_(std::move(communicator)),
      options_(options ? std::move(options) : c10::make_intrusive<GroupOptions>()),
      threads_(std::make_shared<CompletionThreads>()),
      // A communicator made elsewhere has its own timeout.
      timeout_(std::chrono::milliseconds::zero()) {}

GroupBackend::~GroupBackend() {
  GroupBackend::shutdown();
}

std::shared_ptr<Communicator> GroupBackend::communicator() const {
  const std::lock_guard lock(mutex_);
  if (communicator_) return communicator_;
  throw Exception(ErrorKind::aborted,
                  fmt::format("rank {}: the process group has been shut down", rank_));
}

OperationOptions GroupBackend::options_with(std::chrono::milliseconds timeout) const {
  constexpr auto none = std::chrono::milliseconds::zero();
  OperationOptions options;
  if (timeout <= none) timeout = timeout_;
  if (timeout > none) options.timeout = timeout;
  options.lane = lane_;
  return options;
}

GroupBackend::WorkPointer GroupBackend::track(TensorOperation operation) {
  auto work = c10::make_intrusive<TensorWork>(rank_, next_number(), std::move(operation), threads_,
                                              unmoved_);
  // The group's backends for other devices have other lanes.
  const auto lane = static_cast<std::uint64_t>(lane_);
  if (hooks_->wanted()) work->report_to(hooks_, lane << 48 | work->getSequencenumber());
  collect(work);
  return work;
}

void GroupBackend::report_staged(const WorkPointer& work) const {
  if (!hooks_->wanted()) return;
  // The callback keeps the Work, whose key is its address, until then.
  work->getFuture()->addCallback(
      [hooks = hooks_, work, posted = SteadyClock().now()](auto& future) {
        if (future.hasError()) return hooks->failed();
        const std::chrono::duration<float, std::milli> took = SteadyClock().now() - posted;
        hooks->completed(completion_key(*work), took.count());
      });
}

void GroupBackend::registerCompletionHook(std::int64_t hook_id, CompletionHook hook) {
  hooks_->add_completion(hook_id, std::move(hook));
}

void GroupBackend::unregisterCompletionHook(std::int64_t hook_id) {
  hooks_->remove_completion(hook_id);
}

void GroupBackend::registerAbortHook(std::int64_t hook_id, AbortHook hook) {
  hooks_->add_abort(hook_id, std::move(hook));
}

void GroupBackend::unregisterAbortHook(std::int64_t hook_id) {
  hooks_->remove_abort(hook_id);
}

void GroupBackend::startCoalescing() {
  coalesced_.start();
}

GroupBackend::WorkPointer GroupBackend::endCoalescing() {
  auto works = coalesced_.end();
  TensorOperation all{.type = c10d::OpType::COALESCED};
  for (const auto& work : works) {
    const auto* const ours = dynamic_cast<const TensorWork*>(work.get());
    if (ours == nullptr) return c10::make_intrusive<CoalescedWork>(rank_, std::move(works));
    std::ranges::copy(ours->operation().parts, std::back_inserter(all.parts));
  }
  all.finish = [works] {
    for (const auto& work : works) work->isCompleted();  // Moves its results.
  };
  return track(std::move(all));
}

c10::intrusive_ptr<c10d::Backend> GroupBackend::split(const c10::intrusive_ptr<c10d::Store>& store,
                                                      const std::vector<int>& ranks,
                                                      const c10::intrusive_ptr<Options>& opts) {
  const auto self = std::ranges::find(ranks, rank_);
  if (self == ranks.end()) return nullptr;
  const auto* ours = dynamic_cast<const GroupOptions*>(opts.get());
  auto options = c10::make_intrusive<GroupOptions>(ours ? *ours : *options_);
  if (opts) {
    options->timeout = opts->timeout;
    options->group_name = opts->group_name;
  }
  auto connected = connect_group(store, static_cast<Rank>(self - ranks.begin()),
                                 static_cast<int>(ranks.size()), *options);
  return make_split(std::move(connected), std::move(options));
}

void GroupBackend::setTimeout(std::chrono::milliseconds timeout) {
  if (timeout <= std::chrono::milliseconds::zero()) {
    refuse("rank {}: the timeout is {} ms; it must be positive", rank_, timeout.count());
  }
  timeout_ = timeout;
}

void GroupBackend::abort() {
  abort_with_reason(fmt::format("rank {} aborted its process group", rank_));
}

void GroupBackend::abort_with_reason(const std::string& why) {
  std::shared_ptr<Communicator> communicator;
  {
    const std::lock_guard lock(mutex_);
    communicator = communicator_;
  }
  hooks_->failed();
  if (communicator) communicator->abort(why);
}

void GroupBackend::leave_at_once(const std::string& failure) {
  std::shared_ptr<Communicator> communicator;
  {
    const std::lock_guard lock(mutex_);
    communicator = communicator_;
  }
  if (communicator) communicator->leave_at_once(failure);
}

void GroupBackend::shutdown() {
  release();
  close_callbacks();
}

/// Completes the operations in flight, unless the communicator has other owners.
void GroupBackend::release() {
  std::shared_ptr<Communicator> closing;
  {
    const std::lock_guard lock(mutex_);
    closing.swap(communicator_);
  }
  closing.reset();
}

void GroupBackend::close_callbacks() {
  unmoved_->move();
  threads_->close();
}

}  // namespace gradwire
