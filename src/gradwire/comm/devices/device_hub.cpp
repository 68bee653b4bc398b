#include "gradwire/comm/devices/device_hub.h"

#include <algorithm>
#include <exception>
#include <numeric>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sched.h>

#include "gradwire/base/log.h"
#include "gradwire/base/refuse.h"

namespace gradwire {
namespace {

using engine::OperationRequest;
using schedule::Collective;

/// A wake-up takes some 30 us: a thread that waits spins first, for about this time.
constexpr Duration kDeviceSpin = std::chrono::microseconds(200);
constexpr int kTriesPerLock = 16;

bool is_message(const OperationRequest& request) {
  return request.fingerprint.collective == Collective::point_to_point;
}

bool sends_from(const OperationRequest& request, Rank rank) {
  return request.sends_to_self ||
         (request.fingerprint.root == rank && request.peer >= 0 && request.peer != rank);
}

std::size_t bytes_of_message(const OperationRequest& request) {
  return static_cast<std::size_t>(request.fingerprint.count) * size_of(request.fingerprint.type);
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
  const std::lock_guard lock(mutex_);
  auto& lanes = groups_.front()->lanes;
  if (lanes.contains(first)) return;  // Another device has opened them.
  const int between = between_->reserve_lanes(count);
  for (int i = 0; i < count; ++i) lanes[first + i].between = between + i;
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

// --- messages ---

void DeviceHub::arrive_with_message(int device, OperationRequest request) {
  Group& group = *groups_[request.group];
  const Rank self = group.shape.rank(static_cast<int>(place_of(group, device)));
  const Rank peer = request.peer;
  const bool sends = sends_from(request, self);
  const auto message = std::make_shared<Meeting>(Meeting{.group = request.group,
                                                         .devices = {0},
                                                         .missing = 1,
                                                         .deadline = after(now(), request.timeout),
                                                         .owner = device,
                                                         .sends = sends,
                                                         .source = sends ? self : peer});
  if (request.sends_to_self) {  // The sender has its memory back at once.
    message->kept.assign(request.input, request.input + bytes_of_message(request));
    request.input = message->kept.data();
    std::exchange(request.completion, nullptr)->succeeded();
  }
  const int tag = request.tag;
  message->requests.push_back(std::move(request));
  in_flight_.push_back(message);
  if (peer >= 0 && group.shape.process_of(peer) != group.shape.process)
    return post_between(group, self, message);
  Mailbox& mailbox = group.mail[{sends ? peer : self, tag}];
  (sends ? mailbox.sends : mailbox.receives).push_back(message);
  deliver(mailbox);
  if (peer < 0 || message->missing == 0) return;
  const int other = group.devices[group.shape.device_of(peer)];
  if (has_left_[static_cast<std::size_t>(other)]) fail(departure(other, *message));
}

void DeviceHub::post_between(const Group& group, Rank self, const MeetingPointer& message) {
  const OperationRequest& request = message->requests.front();
  const std::size_t own = group.shape.device_of(self);
  const std::size_t other = group.shape.device_of(request.peer);
  const std::size_t sender = message->sends ? own : other, receiver = message->sends ? other : own;
  message->pair = static_cast<int>(sender) * group.shape.devices + static_cast<int>(receiver);
  message->missing = 0;
  message->steps = {
      {.between = [&what = request, sends = message->sends,
                   to = group.shape.process_of(request.peer)](Communicator& pair, int /*lane*/) {
        const OperationOptions options{
            .priority = what.priority, .timeout = what.timeout, .layout = what.fingerprint.sent};
        const auto count = static_cast<std::size_t>(what.fingerprint.count);
        const DataType type = what.fingerprint.type;
        return sends ? pair.send({what.input, count, type}, to, what.tag, options)
                     : pair.recv({what.output, count, type, nullptr}, to, what.tag, options);
      }}};
  start(message);
}

/// Starts the first message that a receive waits for, if there is one.
void DeviceHub::deliver(Mailbox& mailbox) {
  for (auto receive = mailbox.receives.begin(); receive != mailbox.receives.end(); ++receive) {
    const Rank wanted = (*receive)->source;  // -1: any.
    const auto send = std::ranges::find_if(mailbox.sends, [&](const MeetingPointer& each) {
      return wanted < 0 || each->source == wanted;
    });
    if (send == mailbox.sends.end()) continue;
    const MeetingPointer message = *receive, sent = *send;
    mailbox.receives.erase(receive);
    mailbox.sends.erase(send);
    const auto& from = sent->requests.front().fingerprint;
    const auto& to = message->requests.front().fingerprint;
    if (from.count != to.count || from.type != to.type || from.sent != to.sent) {
      const std::string text = fmt::format(
          "ranks disagree about a message with tag {}: rank {} "
          "sends {} {}, and {} {} are received",
          message->requests.front().tag, sent->source, from.count, name_of(from.type), to.count,
          name_of(to.type));
      return fail({ErrorKind::mismatch, text});
    }
    std::erase(in_flight_, sent);
    sent->missing = 0;
    message->source = sent->source;
    message->kept = std::move(sent->kept);
    message->requests.push_back(std::move(sent->requests.front()));
    message->missing = 0;
    const OperationRequest& receiver = message->requests.front();
    message->steps = {
        message_step(message->requests.back().input, receiver.output, bytes_of_message(receiver))};
    return start(message);
  }
}

// --- threads ---

/// Runs the next slice of the operation with the highest priority.
void DeviceHub::run_slice(Lock& lock) {
  const auto first = std::ranges::max_element(
      ready_, {}, [](const MeetingPointer& meeting) { return meeting->any().priority; });
  const MeetingPointer meeting = *first;
  const DeviceStep& step = meeting->steps[meeting->step];
  const std::size_t slice = meeting->next++;
  ++meeting->running;
  if (meeting->next == step.slices) ready_.erase(first);
  has_ready_ = !ready_.empty();
  lock.unlock();
  step.run(slice);
  lock.lock();
  --meeting->running;
  if (error_) {
    end_failed(meeting);
  } else if (meeting->running == 0 && meeting->next == step.slices) {
    ++meeting->step;
    advance(meeting);
  }
}

/// Further slices are left to the threads that wait.
void DeviceHub::run_ready(Lock& lock) {
  while (!ready_.empty()) {
    const MeetingPointer& first = ready_.front();
    if (waiting_ > 0 && first->steps[first->step].slices > 1) return;
    run_slice(lock);
    flush(lock);
  }
}

/// Does what must not be done under the lock: tells the other processes of an error, begins the
/// operations between processes, and publishes results.
void DeviceHub::flush(Lock& lock) {
  for (;;) {
    if (std::exchange(abort_between_, false) && between_) {
      const auto between = between_;
      lock.unlock();
      between->abort(error_->message);
      lock.lock();
      continue;
    }
    if (!posting_ && !to_post_.empty()) {
      begin_between(lock);
      continue;
    }
    DeviceEngine::Ended ended;
    for (DeviceEngine* engine : engines_) {
      if (engine == nullptr) continue;
      for (auto& work : engine->take_ended()) ended.push_back(std::move(work));
    }
    if (ended.empty()) return;
    lock.unlock();
    try {
      DeviceEngine::publish(ended);
    } catch (const std::exception& e) {
      log_error("a callback of an operation failed: {}", e.what());
    }
    ended.clear();
    lock.lock();
    waiters_.notify_all();
  }
}

/// One thread at a time, so that they begin in order. A callback may get here again: it leaves what
/// it adds to the caller.
void DeviceHub::begin_between(Lock& lock) {
  posting_ = true;
  while (!to_post_.empty()) {
    const MeetingPointer meeting = to_post_.front();
    to_post_.pop_front();
    const bool is_collective = meeting->lane >= 0;
    const int lane =
        is_collective ? groups_[meeting->group]->lanes[meeting->lane].between : meeting->lane;
    const std::shared_ptr<Communicator> on =
        is_collective ? between_ : pairs_[static_cast<std::size_t>(meeting->pair)];
    const DeviceStep& step = meeting->steps[meeting->step];
    lock.unlock();
    try {
      const Work work = step.between(*on, lane);
      work.on_done([self = shared_from_this(), meeting](const Work& done) {
        self->ended_between(meeting, done);
      });
      work.drive_in_background();
      lock.lock();
    } catch (const Exception& e) {
      lock.lock();
      meeting->is_between = false;
      fail({e.kind(), e.what()});
      end_failed(meeting);
    }
  }
  posting_ = false;
}

void DeviceHub::ended_between(const MeetingPointer& meeting, const Work& work) {
  Lock lock(mutex_);
  meeting->is_between = false;
  if (const auto error = work.error()) {
    if (!error_) {
      fail(*error);
      abort_between_ = false;  // It has failed.
    }
    end_failed(meeting);
  } else if (error_) {
    end_failed(meeting);
  } else {
    ++meeting->step;
    advance(meeting);
  }
  flush(lock);
  run_ready(lock);
}

void DeviceHub::wait(const engine::PostedWork& work, Time until) {
  Lock lock(mutex_);
  wait_for(
      lock, [&work] { return work.is_done(); }, until);
}

/// A thread leaves when there is nothing to run, as those that post rely on it.
void DeviceHub::wait_for(Lock& lock, const std::function<bool()>& done, Time until) {
  ++waiting_;
  Time time = now();
  const Time spin_until = after(time, kDeviceSpin);
  for (;; time = now()) {
    while (!ready_.empty()) {
      run_slice(lock);
      flush(lock);
    }
    if (done() || time >= until) break;
    if (fail_overdue(time)) {
      flush(lock);
    } else if (time < spin_until) {
      lock.unlock();
      for (int i = 0; i < kTriesPerLock && !has_ready_; ++i) sched_yield();
      lock.lock();
    } else {
      gradwire::wait_until(waiters_, lock, std::min(until, next_deadline()));
    }
  }
  --waiting_;
}

// --- the end ---

/// Ends all operations, now or when nothing uses their memory.
void DeviceHub::fail(const Error& error) {
  if (error_) return;
  error_ = error;
  abort_between_ = true;
  ready_.clear();
  has_ready_ = false;
  for (const MeetingPointer& meeting : to_post_) meeting->is_between = false;
  to_post_.clear();
  for (auto& group : groups_) {
    for (auto& [number, lane] : group->lanes) {
      for (const auto& [sequence, meeting] : lane.open)  // They wait for their turn.
        if (sequence >= lane.turn) meeting->is_between = false;
      lane.open.clear();
    }
    group->mail.clear();
  }
  for (const MeetingPointer& meeting : std::vector(in_flight_)) end_failed(meeting);
  waiters_.notify_all();
}

void DeviceHub::end_failed(const MeetingPointer& meeting) {
  if (meeting->running > 0 || meeting->is_between) return;
  if (std::erase(in_flight_, meeting) == 0) return;
  for (const OperationRequest& request : meeting->requests) {
    if (!request.completion) continue;
    const char* const state = request.input_survives ? "the input is intact"
                                                     : "the contents of the output buffer are "
                                                       "undefined";
    request.completion->failed(
        {error_->kind,
         fmt::format("{} failed: {}; {}", request.fingerprint.describe(), error_->message, state)});
  }
}

bool DeviceHub::fail_overdue(Time now) {
  for (const MeetingPointer& meeting : in_flight_) {
    if (meeting->missing == 0 || meeting->deadline > now) continue;
    fail({ErrorKind::timeout, late_text(*meeting)});
    return true;
  }
  return false;
}

std::string DeviceHub::late_text(const Meeting& meeting) const {
  const Group& group = *groups_[meeting.group];
  const std::string late = fmt::format(
      "{} was not complete within its timeout of {} s: ", meeting.any().fingerprint.describe(),
      seconds(meeting.any().timeout));
  if (meeting.lane < 0) return late + "the other side has not called it";
  std::vector<Rank> absent;
  for (int device = 0; device < group.shape.devices; ++device) {
    if (std::ranges::find(meeting.devices, device) == meeting.devices.end())
      absent.push_back(group.shape.rank(device));
  }
  return late + fmt::format("rank {} has not called it", fmt::join(absent, ", rank "));
}

Time DeviceHub::next_deadline() const {
  Time next = Time::max();
  for (const MeetingPointer& meeting : in_flight_)
    if (meeting->missing > 0) next = std::min(next, meeting->deadline);
  return next;
}

void DeviceHub::abort(Error error) {
  Lock lock(mutex_);
  fail(error);
  flush(lock);
}

/// Returns true if an operation in flight of other ranks may need the device. A receive without a
/// matching send does not count.
bool DeviceHub::is_needed(int device) const {
  return std::ranges::any_of(in_flight_, [&](const MeetingPointer& meeting) {
    if (meeting->lane < 0)
      return meeting->missing == 0 ||
             (meeting->sends && meeting->owner == device && meeting->any().completion);
    const Group& group = *groups_[meeting->group];
    return std::ranges::find(meeting->devices, static_cast<int>(place_of(group, device))) !=
           meeting->devices.end();
  });
}

void DeviceHub::leave(int device, engine::Engine::Close how, const std::string& failure) {
  Lock lock(mutex_);
  const auto is_done = [&] { return error_ || !is_needed(device); };
  if (how == engine::Engine::Close::completing) wait_for(lock, is_done, Time::max());
  if (!failure.empty() || !is_done())
    fail(
        {ErrorKind::aborted, fmt::format("rank {} left the job {}", shape_.rank(device), failure)});
  has_left_[static_cast<std::size_t>(device)] = true;
  end_receives_of(device);
  fail_those_that_need(device);
  flush(lock);
  if (std::ranges::find(has_left_, false) != has_left_.end()) return;
  // Not by a callback, perhaps the last owner of this object, on a thread that would wait for
  // itself.
  const auto pairs = std::move(pairs_);
  const auto between = std::move(between_);
  lock.unlock();
}

void DeviceHub::end_receives_of(int device) {
  for (const MeetingPointer& meeting : std::vector(in_flight_)) {
    if (meeting->lane >= 0 || meeting->missing == 0 || meeting->owner != device) continue;
    if (meeting->sends) continue;
    std::erase(in_flight_, meeting);
    for (auto& [address, mailbox] : groups_[meeting->group]->mail)
      std::erase(mailbox.receives, meeting);
    meeting->any().completion->failed(
        {ErrorKind::aborted, "the communicator was closed while the operation was in flight"});
  }
}

void DeviceHub::fail_those_that_need(int device) {
  for (const MeetingPointer& meeting : in_flight_) {
    if (meeting->missing == 0) continue;
    const Group& group = *groups_[meeting->group];
    const std::size_t place = place_of(group, device);
    if (place == group.devices.size()) continue;
    const Rank rank = group.shape.rank(static_cast<int>(place));
    if (meeting->lane < 0 && (meeting->sends || meeting->source != rank)) continue;
    return fail(departure(device, *meeting));
  }
}

Error DeviceHub::departure(int device, const Meeting& meeting) const {
  const Group& group = *groups_[meeting.group];
  return {ErrorKind::disconnected,
          fmt::format("rank {} left the job before its part in {} was complete",
                      group.shape.rank(static_cast<int>(place_of(group, device))),
                      meeting.any().fingerprint.describe())};
}

// --- the engine of a device ---

DeviceEngine::DeviceEngine(std::shared_ptr<DeviceHub> hub, int device)
    : hub_(std::move(hub)), device_(device) {
  hub_->join(device_, this);
}

DeviceEngine::~DeviceEngine() {
  hub_->join(device_, nullptr);
}

engine::EngineTraits DeviceEngine::traits() const {
  return hub_->traits();
}

void DeviceEngine::post(OperationRequest request) {
  std::vector<OperationRequest> one;
  one.push_back(std::move(request));
  hub_->post(device_, std::move(one));
}

void DeviceEngine::post(std::vector<OperationRequest> requests) {
  hub_->post(device_, std::move(requests));
}

Time DeviceEngine::now() const {
  return hub_->now();
}

void DeviceEngine::wait(const engine::PostedWork& work, Time until) {
  hub_->wait(work, until);
}

void DeviceEngine::abort(Error error) {
  hub_->abort(std::move(error));
}

void DeviceEngine::close(Close how, const std::string& failure) {
  if (std::exchange(is_closed_, true)) return;
  hub_->leave(device_, how, failure);
}

engine::Executor::Traffic DeviceEngine::traffic() {
  return hub_->traffic(device_);
}

void DeviceEngine::open_lanes(std::uint16_t group, int first, int count) {
  hub_->open_lanes(group, first, count);
}

std::optional<std::uint16_t> DeviceEngine::open_group(std::uint16_t parent,
                                                      std::span<const Rank> ranks) {
  return hub_->open_group(device_, parent, ranks);
}

}  // namespace gradwire
