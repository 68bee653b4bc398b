#include "gradwire/comm/devices/device_hub.h"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "gradwire/base/refuse.h"

namespace gradwire {
namespace {

using engine::OperationRequest;
using schedule::Collective;

bool is_message(const OperationRequest& request) {
  return request.fingerprint.collective == Collective::point_to_point;
}

[[noreturn]] void refuse_between(const char* what) {
  throw Exception(ErrorKind::unsupported,
                  fmt::format("several devices in one of several processes have no {}: use one "
                              "process for each device",
                              what));
}

}  // namespace

const OperationRequest& DeviceHub::Meeting::any() const {
  return requests[static_cast<std::size_t>(devices.front())];
}

DeviceHub::DeviceHub(std::shared_ptr<Communicator> between, int devices,
                     std::shared_ptr<const Clock> clock)
    : clock_(std::move(clock)),
      between_(between && between->size() > 1 ? std::move(between) : nullptr),
      engines_(static_cast<std::size_t>(devices)),
      has_left_(static_cast<std::size_t>(devices)) {
  auto all = std::make_unique<Group>();
  shape_.devices = devices;
  all->devices.resize(static_cast<std::size_t>(devices));
  std::iota(all->devices.begin(), all->devices.end(), 0);
  if (between_) {
    shape_.processes = between_->size();
    shape_.process = between_->rank();
    all->lanes[0].between = between_->reserve_lanes(1);
    std::vector<Rank> processes(static_cast<std::size_t>(between_->size()));
    std::iota(processes.begin(), processes.end(), 0);
    // Subgroups have tags of their own.
    for (int i = 0; i < devices * devices; ++i) pairs_.push_back(between_->subgroup(processes));
  }
  all->shape = shape_;
  groups_.push_back(std::move(all));
}

void DeviceHub::join(int device, DeviceEngine* engine) {
  const std::lock_guard lock(mutex_);
  engines_[static_cast<std::size_t>(device)] = engine;
}

engine::EngineTraits DeviceHub::traits() const {
  engine::EngineTraits traits = between_ ? between_->traits() : engine::EngineTraits();
  traits.has_algorithms = false;
  traits.has_pairs = false;
  return traits;
}

engine::Executor::Traffic DeviceHub::traffic(int device) {
  if (!between_ || device > 0) return {};
  return {between_->payload_bytes_sent(), between_->bytes_sent()};
}

// --- groups and lanes ---

std::size_t DeviceHub::place_of(const Group& group, int device) const {
  return static_cast<std::size_t>(std::ranges::find(group.devices, device) - group.devices.begin());
}

void DeviceHub::open_lanes(std::uint16_t group, int first, int count) {
  if (!between_ || group != 0) return;
  // Not under the hub's lock: other processes take part, and the thread that drives `between` may
  // need that lock.
  const std::lock_guard opening(opening_);
  {
    const std::lock_guard lock(mutex_);
    if (groups_.front()->lanes.contains(first)) return;  // Another device has opened them.
  }
  const int between = between_->reserve_lanes(count);
  const std::lock_guard lock(mutex_);
  for (int i = 0; i < count; ++i) groups_.front()->lanes[first + i].between = between + i;
}

std::uint16_t DeviceHub::open_group(int device, std::uint16_t parent, std::span<const Rank> ranks) {
  const std::lock_guard lock(mutex_);
  Group& from = *groups_[parent];
  auto made = std::make_unique<Group>();
  for (const Rank rank : ranks) {
    if (from.shape.process_of(rank) != from.shape.process)
      refuse_between("subgroups across processes");
    made->devices.push_back(from.devices[from.shape.device_of(rank)]);
  }
  made->shape.devices = static_cast<int>(ranks.size());
  // A device's n-th subgroup of these ranks is the n-th of all of them.
  const std::vector<Rank> key(ranks.begin(), ranks.end());
  auto& mine = from.subgroups[device][key];
  for (const int other : made->devices) {
    const auto& theirs = from.subgroups[other][key];
    if (theirs.size() <= mine.size()) continue;
    mine.push_back(theirs[mine.size()]);
    return mine.back();
  }
  if (groups_.size() > UINT16_MAX) refuse("a job has at most {} subgroups", UINT16_MAX);
  mine.push_back(static_cast<std::uint16_t>(groups_.size()));
  groups_.push_back(std::move(made));
  return mine.back();
}

// --- operations ---

void DeviceHub::post(int device, std::vector<OperationRequest> requests) {
  Lock lock(mutex_);
  for (const OperationRequest& request : requests) check(request);
  for (OperationRequest& request : requests) arrive(device, std::move(request));
  flush(lock);
  run_ready(lock);
}

/// Throws Exception for what cannot be done, before anything is.
void DeviceHub::check(const OperationRequest& request) const {
  const Group& group = *groups_[request.group];
  if (group.shape.processes == 1) return;
  if (request.program_from) refuse_between("receives from any rank");
  if (!is_message(request) && !group.lanes.contains(request.lane))
    refuse("lane {} is not reserved (reserve_lanes())", request.lane);
}

void DeviceHub::arrive(int device, OperationRequest request) {
  if (error_) {
    request.completion->failed(
        {ErrorKind::aborted, fmt::format("the communicator is unusable after an earlier error; "
                                         "create a new one (earlier error: {}); the buffer was "
                                         "not touched",
                                         error_->message)});
    return;
  }
  is_message(request) ? arrive_with_message(device, std::move(request))
                      : arrive_at_collective(device, std::move(request));
}

DeviceHub::MeetingPointer DeviceHub::meeting_for(Group& group, std::size_t place,
                                                 const OperationRequest& request) {
  Lane& lane = group.lanes[request.lane];
  lane.called.resize(group.devices.size());
  const std::uint64_t sequence = lane.called[place]++;
  MeetingPointer& meeting = lane.open[sequence];
  if (!meeting) {
    meeting = std::make_shared<Meeting>(Meeting{.group = request.group,
                                                .lane = request.lane,
                                                .sequence = sequence,
                                                .missing = group.devices.size(),
                                                .deadline = after(now(), request.timeout)});
    meeting->requests.resize(group.devices.size());
    in_flight_.push_back(meeting);
  }
  return meeting;
}

void DeviceHub::arrive_at_collective(int device, OperationRequest request) {
  Group& group = *groups_[request.group];
  const std::size_t place = place_of(group, device);
  const MeetingPointer meeting = meeting_for(group, place, request);
  meeting->requests[place] = std::move(request);
  meeting->devices.push_back(static_cast<int>(place));
  --meeting->missing;
  if (!agree(*meeting)) {
    const auto rank = [&](std::size_t at) { return group.shape.rank(meeting->devices[at]); };
    return fail(
        {ErrorKind::mismatch,
         fmt::format("ranks disagree about operation #{} of lane {}: rank {} calls {}, "
                     "rank {} calls {}; every rank must call the same operations in the "
                     "same order with the same sizes and types",
                     meeting->sequence, meeting->lane, rank(0),
                     meeting->any().fingerprint.describe(), rank(meeting->devices.size() - 1),
                     meeting->requests[place].fingerprint.describe())});
  }
  for (const int other : group.devices) {
    if (!has_left_[static_cast<std::size_t>(other)]) continue;
    return fail(departure(other, *meeting));
  }
  if (meeting->missing > 0) return;
  const Lane& lane = group.lanes[meeting->lane];
  const bool is_fence = meeting->any().fingerprint.collective == Collective::barrier;
  if (!is_fence || lane.open.begin()->second == meeting) start(meeting);
}

/// Returns true if the newest device calls what the first one does. The parts of an all_to_all are
/// compared when all have come.
bool DeviceHub::agree(const Meeting& meeting) const {
  const auto& last = meeting.requests[static_cast<std::size_t>(meeting.devices.back())];
  if (last.fingerprint != meeting.any().fingerprint) return false;
  if ((last.splits == nullptr) != (meeting.any().splits == nullptr)) return false;
  if (!last.splits || meeting.missing > 0) return true;
  const DeviceShape& shape = groups_[meeting.group]->shape;
  const auto size = [&](std::size_t device, schedule::Buffer buffer, std::size_t other) {
    const auto rank = static_cast<std::uint32_t>(shape.rank(static_cast<int>(other)));
    const auto& splits = *meeting.requests[device].splits;
    return splits.begin(buffer, rank + 1) - splits.begin(buffer, rank);
  };
  for (std::size_t s = 0; s < meeting.requests.size(); ++s) {
    for (std::size_t t = 0; t < meeting.requests.size(); ++t) {
      if (size(s, schedule::Buffer::input, t) != size(t, schedule::Buffer::output, s)) return false;
    }
  }
  return true;
}

void DeviceHub::start(const MeetingPointer& meeting) {
  meeting->started = true;
  if (meeting->steps.empty())
    meeting->steps = steps_of(meeting->requests, groups_[meeting->group]->shape);
  advance(meeting);
}

/// Begins the next step that has something to do, or ends the operation.
void DeviceHub::advance(const MeetingPointer& meeting) {
  for (; meeting->step < meeting->steps.size(); ++meeting->step) {
    const DeviceStep& step = meeting->steps[meeting->step];
    if (step.between) return queue_between(meeting);
    if (step.slices == 0) continue;
    meeting->next = 0;
    ready_.push_back(meeting);
    has_ready_ = true;
    if (waiting_ > 0) waiters_.notify_all();
    return;
  }
  finish(meeting);
}

/// All processes must begin the operations of a lane in the same order.
void DeviceHub::queue_between(const MeetingPointer& meeting) {
  meeting->is_between = true;
  if (meeting->lane < 0) return to_post_.push_back(meeting);
  Lane& lane = groups_[meeting->group]->lanes[meeting->lane];
  for (auto next = lane.open.find(lane.turn); next != lane.open.end() && next->second->is_between;
       next = lane.open.find(++lane.turn)) {
    to_post_.push_back(next->second);
  }
}

void DeviceHub::finish(const MeetingPointer& meeting) {
  std::erase(in_flight_, meeting);
  for (const OperationRequest& request : meeting->requests) {
    if (!request.completion) continue;
    if (request.program_from) request.completion->resolved(meeting->source);
    request.completion->succeeded();
  }
  if (meeting->lane < 0) return;
  auto& open = groups_[meeting->group]->lanes[meeting->lane].open;
  open.erase(meeting->sequence);
  if (open.empty()) return;
  const MeetingPointer first = open.begin()->second;
  if (first->missing == 0 && !first->started) start(first);  // A barrier.
}

}  // namespace gradwire
