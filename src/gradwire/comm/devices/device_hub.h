#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gradwire/base/clock.h"
#include "gradwire/comm/communicator.h"
#include "gradwire/comm/devices/device_steps.h"
#include "gradwire/engine/engine.h"

namespace gradwire {

class DeviceEngine;

/// Where the devices of a process meet: executes their operations in its memory, and those of all
/// processes on another communicator. It has no thread: the one that posts last runs an operation's
/// slices, or leaves them to those that wait. No user code runs under its lock.
class DeviceHub : public std::enable_shared_from_this<DeviceHub> {
 public:
  /// Collective over the processes. `between`: null if this one is alone.
  DeviceHub(std::shared_ptr<Communicator> between, int devices, std::shared_ptr<const Clock> clock);

  const DeviceShape& shape() const { return shape_; }

  // Called by the devices' engines.

  void join(int device, DeviceEngine* engine);
  engine::EngineTraits traits() const;
  void post(int device, std::vector<engine::OperationRequest> requests);
  Time now() const { return clock_->now(); }
  void wait(const engine::PostedWork& work, Time until);
  void abort(Error error);
  void leave(int device, engine::Engine::Close how, const std::string& failure);
  engine::Executor::Traffic traffic(int device);
  void open_lanes(std::uint16_t group, int first, int count);
  std::uint16_t open_group(int device, std::uint16_t parent, std::span<const Rank> ranks);

 private:
  using Lock = std::unique_lock<std::mutex>;

  /// An operation that at least one device has called.
  struct Meeting {
    std::uint16_t group = 0;
    int lane = -1;  ///< -1: a message.
    std::uint64_t sequence = 0;
    std::vector<engine::OperationRequest> requests;  ///< By device; of a message: all there are.
    std::vector<int> devices;                        ///< Those that have come.
    std::size_t missing = 0;                         ///< Devices that have not come.
    Time deadline = Time::max();
    std::vector<DeviceStep> steps;
    bool started = false;
    std::size_t step = 0;
    std::size_t next = 0;     ///< The first slice that no thread has taken.
    std::size_t running = 0;  ///< Slices that threads run.
    bool is_between = false;  ///< Its operation between processes is in flight.
    // For messages:
    int owner = -1;               ///< Device that has called it.
    bool sends = false;           ///< It is a send.
    Rank source = -1;             ///< The sender; -1: any.
    int pair = -1;                ///< The communicator of a message between processes.
    std::vector<std::byte> kept;  ///< A message of a rank to itself.

    const engine::OperationRequest& any() const;
  };
  using MeetingPointer = std::shared_ptr<Meeting>;

  struct Lane {
    std::vector<std::uint64_t> called;             ///< Operations that each device has called.
    std::map<std::uint64_t, MeetingPointer> open;  ///< Those that are not complete.
    std::uint64_t turn = 0;  ///< The first whose operation between processes has not begun.
    int between = 0;         ///< The lane of these.
  };

  /// Messages to one rank with one tag.
  struct Mailbox {
    std::deque<MeetingPointer> sends, receives;
  };

  struct Group {
    DeviceShape shape;
    std::vector<int> devices;  ///< The hub's numbers of its devices.
    std::map<int, Lane> lanes;
    std::map<std::pair<Rank, int>, Mailbox> mail;
    std::map<int, std::map<std::vector<Rank>, std::vector<std::uint16_t>>> subgroups;
  };

  // Under the lock.
  std::size_t place_of(const Group& group, int device) const;
  void check(const engine::OperationRequest& request) const;
  void arrive(int device, engine::OperationRequest request);
  void arrive_at_collective(int device, engine::OperationRequest request);
  void arrive_with_message(int device, engine::OperationRequest request);
  void post_between(const Group& group, Rank self, const MeetingPointer& message);
  void deliver(Mailbox& mailbox);
  MeetingPointer meeting_for(Group& group, std::size_t place,
                             const engine::OperationRequest& request);
  bool agree(const Meeting& meeting) const;
  void start(const MeetingPointer& meeting);
  void advance(const MeetingPointer& meeting);
  void queue_between(const MeetingPointer& meeting);
  void finish(const MeetingPointer& meeting);
  void fail(const Error& error);
  void end_failed(const MeetingPointer& meeting);
  bool fail_overdue(Time now);
  std::string late_text(const Meeting& meeting) const;
  Time next_deadline() const;
  bool is_needed(int device) const;
  void end_receives_of(int device);
  void fail_those_that_need(int device);
  Error departure(int device, const Meeting& meeting) const;

  // These release the lock for a while.
  void run_slice(Lock& lock);
  void run_ready(Lock& lock);
  void flush(Lock& lock);
  void begin_between(Lock& lock);
  void wait_for(Lock& lock, const std::function<bool()>& done, Time until);

  void ended_between(const MeetingPointer& meeting, const Work& work);

  std::shared_ptr<const Clock> clock_;
  DeviceShape shape_;
  std::shared_ptr<Communicator> between_;
  std::vector<std::shared_ptr<Communicator>> pairs_;  ///< For messages from a device to another.
  std::mutex opening_;  ///< Held while a device opens lanes; taken before `mutex_`.
  mutable std::mutex mutex_;
  std::condition_variable waiters_;
  std::vector<DeviceEngine*> engines_;  ///< By device; null when it has left.
  std::vector<bool> has_left_;
  std::vector<std::unique_ptr<Group>> groups_;
  std::vector<MeetingPointer> in_flight_;
  std::vector<MeetingPointer> ready_;   ///< Those with slices to take.
  std::deque<MeetingPointer> to_post_;  ///< Those whose operation between processes is to begin.
  bool posting_ = false;                ///< A thread begins these.
  std::optional<Error> error_;
  bool abort_between_ = false;
  int waiting_ = 0;                      ///< Threads in wait_for().
  std::atomic<bool> has_ready_ = false;  ///< For those that spin.
};

}  // namespace gradwire
