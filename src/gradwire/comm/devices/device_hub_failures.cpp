#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "gradwire/comm/devices/device_hub.h"

// Errors, timeouts, and devices that leave.
namespace gradwire {

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

}  // namespace gradwire
