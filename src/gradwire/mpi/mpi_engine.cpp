#include "gradwire/mpi/mpi_engine.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <utility>

#include <fmt/format.h>

#include "gradwire/base/log.h"
#include "gradwire/base/refuse.h"
#include "gradwire/base/tags.h"
#include "gradwire/engine/operations/reduction.h"

namespace gradwire::mpi {
namespace {

/// MPICH allows 2^28 tags, a quarter of gradwire's.
constexpr int kMessageComms = 4;

/// The elements of a reduction's result on this rank; 0 if it has none.
std::size_t reduced_elements(const engine::Fingerprint& what, Rank rank, int ranks) {
  switch (what.collective) {
    case schedule::Collective::all_reduce:
      return what.count;
    case schedule::Collective::reduce_scatter:
      return what.count / static_cast<std::size_t>(ranks);
    case schedule::Collective::reduce:
      return rank == what.root ? what.count : 0;
    default:
      return 0;
  }
}

}  // namespace

MpiEngine::MpiEngine(std::shared_ptr<Process> process, const std::vector<Rank>& members)
    : process_(std::move(process)) {
  process_->engine_opened();
  driver().exclusively([&] {
    Group all{.size = process_->size(), .rank = process_->rank()};
    if (members.empty()) {
      all.lanes = {duplicate(process_->world())};
    } else {
      all.lanes = {communicator_of(process_->world(), members)};
      all.size = static_cast<int>(members.size());
      all.rank = static_cast<Rank>(std::ranges::find(members, all.rank) - members.begin());
    }
    open_messages(all);
    groups_.emplace(std::uint16_t{0}, std::move(all));
  });
}

MpiEngine::~MpiEngine() = default;

engine::EngineTraits MpiEngine::traits() const {
  return {.name = "mpi",
          .has_algorithms = false,
          .counts_bytes = false,
          .has_priorities = false,
          .has_pairs = false,
          .fails_alone = false};
}

gradwire_mpi_handle MpiEngine::duplicate(gradwire_mpi_handle comm) const {
  gradwire_mpi_handle made = 0;
  driver().check(driver().mpi().duplicate(comm, &made), "MPI_Comm_dup");
  return made;
}

gradwire_mpi_handle MpiEngine::communicator_of(gradwire_mpi_handle comm,
                                               std::span<const Rank> ranks) const {
  gradwire_mpi_handle made = 0;
  driver().check(driver().mpi().subgroup(comm, ranks.data(), static_cast<int>(ranks.size()), &made),
                 "MPI_Comm_create_group");
  return made;
}

void MpiEngine::open_messages(Group& group) const {
  group.tags = std::int64_t{driver().mpi().largest_tag(group.lanes.front())} + 1;
  group.messages = {group.lanes.front()};
  for (int i = 1; i < kMessageComms && i * group.tags <= kMaxTag; ++i)
    group.messages.push_back(duplicate(group.lanes.front()));
}

void MpiEngine::open_lanes(std::uint16_t group, int first, int count) {
  driver().exclusively([&] {
    const gradwire_mpi_handle base = group_of(group).lanes.front();
    std::vector<gradwire_mpi_handle> made;
    for (int i = 0; i < count; ++i) made.push_back(duplicate(base));
    const std::lock_guard lock(mutex_);
    auto& lanes = groups_.at(group).lanes;
    lanes.resize(std::max(lanes.size(), static_cast<std::size_t>(first + count)));
    std::ranges::copy(made, lanes.begin() + first);
  });
}

std::optional<std::uint16_t> MpiEngine::open_group(std::uint16_t parent,
                                                   std::span<const Rank> ranks) {
  std::uint16_t number = 0;
  driver().exclusively([&] {
    const Group from = group_of(parent);
    Group made{.size = static_cast<int>(ranks.size())};
    made.rank = static_cast<Rank>(std::ranges::find(ranks, from.rank) - ranks.begin());
    made.lanes = {communicator_of(from.lanes.front(), ranks)};
    open_messages(made);
    const std::lock_guard lock(mutex_);
    if (groups_.size() > UINT16_MAX) refuse("a job has at most {} subgroups", UINT16_MAX);
    number = static_cast<std::uint16_t>(groups_.size());
    groups_.emplace(number, std::move(made));
  });
  return number;
}

/// Returns the MPI communicator for a collective or message. Throws Exception(invalid_argument).
gradwire_mpi_handle MpiEngine::Group::comm_for(const engine::OperationRequest& request) const {
  if (request.tag >= 0) {
    const auto part = static_cast<std::size_t>(request.tag / tags);
    if (part < messages.size()) return messages[part];
    refuse("tag {} is above {}, the largest one with this MPI", request.tag,
           tags * static_cast<std::int64_t>(messages.size()) - 1);
  }
  const auto number = static_cast<std::size_t>(request.lane);
  if (number < lanes.size() && lanes[number] != 0) return lanes[number];
  refuse("lane {} is not reserved (reserve_lanes())", request.lane);
}

MpiEngine::Group MpiEngine::group_of(std::uint16_t number) const {
  const std::lock_guard lock(mutex_);
  return groups_.at(number);
}

// --- operations ---

void MpiEngine::post(engine::OperationRequest request) {
  std::vector<engine::OperationRequest> one;
  one.push_back(std::move(request));
  post(std::move(one));
}

void MpiEngine::post(std::vector<engine::OperationRequest> requests) {
  if (fork_.in_child()) {
    refuse(
        "this process was forked from one that uses MPI, and cannot use its communicator: create a "
        "communicator in each process");
  }
  std::vector<std::unique_ptr<Task>> tasks;
  std::vector<std::shared_ptr<engine::Completion>> sent_to_self;
  for (auto& request : requests) {
    if (request.sends_to_self) sent_to_self.push_back(request.completion);
    tasks.push_back(task_for(std::move(request)));
  }
  in_flight_ += static_cast<int>(tasks.size());
  driver().post(std::move(tasks));
  if (sent_to_self.empty()) return;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& completion : sent_to_self) completion->succeeded();
  }
  publish_ended();
}

std::unique_ptr<Task> MpiEngine::task_for(engine::OperationRequest request) {
  auto task = std::make_unique<Task>();
  gradwire_mpi_handle lane = 0;
  Rank rank = 0;
  int ranks = 1;
  std::int64_t tags = 0;
  {
    const std::lock_guard lock(mutex_);
    const Group& group = groups_.at(request.group);
    lane = group.comm_for(request);
    rank = group.rank;
    ranks = group.size;
    tags = group.tags;
  }
  task->call = call_for(request, lane, rank, ranks, task->parts);
  if (request.tag >= 0) task->call.tag = static_cast<int>(request.tag % tags);
  if (schedule::reduces(request.fingerprint.collective))
    task->call.op = process_->reductions().handle(request.fingerprint.type, request.fingerprint.op);
  // The blocking reduce of MPICH 4.0 crashes on a root other than 0 that reduces in place.
  task->blocks = request.waits_at_once && request.tag < 0 &&
                 request.fingerprint.collective != schedule::Collective::reduce;
  task->timeout = request.timeout;
  std::shared_ptr<std::vector<std::byte>> copy;
  if (request.sends_to_self) {  // The sender has its memory back at once.
    const std::size_t bytes = request.fingerprint.count * size_of(request.fingerprint.type);
    copy = std::make_shared<std::vector<std::byte>>(request.input, request.input + bytes);
    task->call.input = copy->data();
    request.completion = nullptr;
  }
  task->describe = [what = request.fingerprint] { return what.describe(); };
  task->ended = [self = shared_from_this(), request = std::move(request), rank, ranks,
                 copy](Rank source) { self->ended(request, rank, ranks, source); };
  return task;
}

void MpiEngine::ended(const engine::OperationRequest& request, Rank rank, int ranks, Rank source) {
  if (request.fingerprint.op == ReduceOp::mean) {
    engine::finish_reduction(request.output, reduced_elements(request.fingerprint, rank, ranks),
                             request.fingerprint.type, ReduceOp::mean, ranks);
  }
  if (request.completion) {
    const std::lock_guard lock(mutex_);
    if (request.program_from) request.completion->resolved(source);
    request.completion->succeeded();
  }
  --in_flight_;
  publish_ended();
}

void MpiEngine::publish_ended() {
  Ended ended;
  {
    const std::lock_guard lock(mutex_);
    ended = take_ended();
  }
  try {
    publish(ended);
  } catch (const std::exception& e) {
    log_error("a callback of an operation failed: {}", e.what());
  }
}

void MpiEngine::wait(const engine::PostedWork& work, Time until) {
  driver().wait([&work] { return work.is_done(); }, until);
}

// --- the end ---

void MpiEngine::abort(Error error) {
  driver().fail_job(error.message);
}

void MpiEngine::close(Close how, const std::string& failure) {
  if (is_closed_.exchange(true) || fork_.in_child()) return;
  if (how == Close::at_once && (in_flight_ > 0 || !failure.empty()))
    driver().fail_job(fmt::format("it left the job {}", failure));
  driver().wait([this] { return in_flight_ == 0; }, Time::max());
  driver().exclusively([this] {
    const std::lock_guard lock(mutex_);
    for (const auto& [number, group] : groups_) {
      for (std::size_t i = 1; i < group.messages.size(); ++i)
        driver().mpi().free_comm(group.messages[i]);
      for (const gradwire_mpi_handle lane : group.lanes)
        if (lane != 0) driver().mpi().free_comm(lane);
    }
    groups_.clear();
  });
  if (how == Close::completing) process_->engine_closed_in_order();
}

}  // namespace gradwire::mpi
