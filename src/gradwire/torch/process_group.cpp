#include "gradwire/torch/process_group.h"

#include <algorithm>

#include <ATen/DeviceAccelerator.h>
#include <fmt/format.h>

#include "gradwire/base/clock.h"
#include "gradwire/base/refuse.h"
#include "gradwire/torch/releases.h"
#include "gradwire/torch/staged_process_group.h"

namespace gradwire {

OperationsInFlight::Token OperationsInFlight::begin() {
  const std::lock_guard lock(state_->mutex);
  const std::uint64_t number = state_->next++;
  state_->numbers.insert(number);
  return {nullptr, [state = state_, number](std::nullptr_t) {
            const std::lock_guard ending(state->mutex);
            state->numbers.erase(number);
            state->over.notify_all();
          }};
}

bool OperationsInFlight::wait(std::chrono::milliseconds timeout) const {
  std::unique_lock lock(state_->mutex);
  const auto none_before = [this, until = state_->next] {
    return state_->numbers.empty() || *state_->numbers.begin() >= until;
  };
  if (timeout > std::chrono::milliseconds::zero()) {
    return state_->over.wait_for(lock, timeout, none_before);
  }
  state_->over.wait(lock, none_before);
  return true;
}

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

ProcessGroupGradwire::ProcessGroupGradwire(std::shared_ptr<Communicator> communicator,
                                           c10::intrusive_ptr<GroupOptions> options, int lane)
    : c10d::Backend(communicator->rank(), communicator->size()),
      lane_(lane),
      communicator_(std::move(communicator)),
      options_(options ? std::move(options) : c10::make_intrusive<GroupOptions>()),
      threads_(std::make_shared<CompletionThreads>()),
      // A communicator made elsewhere has its own timeout.
      timeout_(std::chrono::milliseconds::zero()) {}

ProcessGroupGradwire::~ProcessGroupGradwire() {
  ProcessGroupGradwire::shutdown();
}

std::shared_ptr<Communicator> ProcessGroupGradwire::communicator() const {
  const std::lock_guard lock(mutex_);
  if (communicator_) return communicator_;
  throw Exception(ErrorKind::aborted,
                  fmt::format("rank {}: the process group has been shut down", rank_));
}

OperationOptions ProcessGroupGradwire::options_with(std::chrono::milliseconds timeout) const {
  constexpr auto none = std::chrono::milliseconds::zero();
  OperationOptions options;
  if (timeout <= none) timeout = timeout_;
  if (timeout > none) options.timeout = timeout;
  options.lane = lane_;
  return options;
}

ProcessGroupGradwire::WorkPointer ProcessGroupGradwire::track(TensorOperation operation) {
  auto work = c10::make_intrusive<TensorWork>(rank_, next_number(), std::move(operation), threads_,
                                              unmoved_);
  // The group's backends for other devices have other lanes.
  const auto lane = static_cast<std::uint64_t>(lane_);
  if (hooks_->wanted()) work->report_to(hooks_, lane << 48 | work->getSequencenumber());
  collect(work);
  return work;
}

void ProcessGroupGradwire::report_staged(const WorkPointer& work) const {
  if (!hooks_->wanted()) return;
  // The callback keeps the Work, whose key is its address, until then.
  work->getFuture()->addCallback(
      [hooks = hooks_, work, posted = SteadyClock().now()](auto& future) {
        if (future.hasError()) return hooks->failed();
        const std::chrono::duration<float, std::milli> took = SteadyClock().now() - posted;
        hooks->completed(completion_key(*work), took.count());
      });
}

void ProcessGroupGradwire::registerCompletionHook(std::int64_t hook_id, CompletionHook hook) {
  hooks_->add_completion(hook_id, std::move(hook));
}

void ProcessGroupGradwire::unregisterCompletionHook(std::int64_t hook_id) {
  hooks_->remove_completion(hook_id);
}

void ProcessGroupGradwire::registerAbortHook(std::int64_t hook_id, AbortHook hook) {
  hooks_->add_abort(hook_id, std::move(hook));
}

void ProcessGroupGradwire::unregisterAbortHook(std::int64_t hook_id) {
  hooks_->remove_abort(hook_id);
}

void ProcessGroupGradwire::startCoalescing() {
  coalesced_.start();
}

ProcessGroupGradwire::WorkPointer ProcessGroupGradwire::endCoalescing() {
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

c10::intrusive_ptr<c10d::Backend> ProcessGroupGradwire::split(
    const c10::intrusive_ptr<c10d::Store>& store, const std::vector<int>& ranks,
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

c10::intrusive_ptr<c10d::Backend> ProcessGroupGradwire::make_split(
    std::shared_ptr<Communicator> communicator, c10::intrusive_ptr<GroupOptions> options) const {
  return c10::make_intrusive<ProcessGroupGradwire>(std::move(communicator), std::move(options));
}

ProcessGroupGradwire::WorkPointer ProcessGroupGradwire::stage(DeviceOperation /*operation*/) {
  refuse("rank {}: this group is for tensors on the CPU", rank_);
}

void ProcessGroupGradwire::setTimeout(std::chrono::milliseconds timeout) {
  if (timeout <= std::chrono::milliseconds::zero()) {
    refuse("rank {}: the timeout is {} ms; it must be positive", rank_, timeout.count());
  }
  timeout_ = timeout;
}

void ProcessGroupGradwire::abort() {
  abort_with_reason(fmt::format("rank {} aborted its process group", rank_));
}

void ProcessGroupGradwire::abort_with_reason(const std::string& why) {
  std::shared_ptr<Communicator> communicator;
  {
    const std::lock_guard lock(mutex_);
    communicator = communicator_;
  }
  hooks_->failed();
  if (communicator) communicator->abort(why);
}

void ProcessGroupGradwire::leave_at_once(const std::string& failure) {
  std::shared_ptr<Communicator> communicator;
  {
    const std::lock_guard lock(mutex_);
    communicator = communicator_;
  }
  if (communicator) communicator->leave_at_once(failure);
}

void ProcessGroupGradwire::shutdown() {
  release();
  close_callbacks();
}

/// Completes the operations in flight, unless the communicator has other owners.
void ProcessGroupGradwire::release() {
  std::shared_ptr<Communicator> closing;
  {
    const std::lock_guard lock(mutex_);
    closing.swap(communicator_);
  }
  closing.reset();
}

void ProcessGroupGradwire::close_callbacks() {
  unmoved_->move();
  threads_->close();
}

c10::intrusive_ptr<c10d::ProcessGroup> make_process_group(
    std::shared_ptr<Communicator> communicator, c10::intrusive_ptr<c10d::Store> store) {
  const auto custom = c10d::ProcessGroup::BackendType::CUSTOM;
  auto group = c10::make_intrusive<c10d::ProcessGroup>(std::move(store), communicator->rank(),
                                                       communicator->size());
  auto backend = c10::make_intrusive<StagedProcessGroup>(std::move(communicator));
  group->setBackend(c10::DeviceType::CPU, custom, backend);
  if (const auto accelerator = at::accelerator::getAccelerator()) {
    group->setBackend(*accelerator, custom, backend);
  }
  group->setDefaultBackend(custom);
  return group;
}

c10::intrusive_ptr<c10d::ProcessGroup> subgroup_of(c10d::ProcessGroup& group,
                                                   const std::vector<Rank>& ranks) {
  const auto communicator = communicator_of(group);
  if (!communicator) {
    throw Exception(ErrorKind::unsupported,
                    "subgroups need a process group of gradwire: make it with gradwire::init()");
  }
  return make_process_group(communicator->subgroup(ranks));
}

std::shared_ptr<Communicator> communicator_of(c10d::ProcessGroup& group) {
  if (!has_backend(group, c10::DeviceType::CPU)) return nullptr;
  const auto backend = group.getBackend(c10::DeviceType::CPU);
  const auto* ours = dynamic_cast<const ProcessGroupGradwire*>(backend.get());
  return ours ? ours->communicator() : nullptr;
}

}  // namespace gradwire
