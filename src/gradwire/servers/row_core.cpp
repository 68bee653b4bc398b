#include "gradwire/servers/row_core.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "gradwire/base/error.h"
#include "gradwire/base/refuse.h"

namespace gradwire::servers {
namespace {

template <class... Arguments>
[[noreturn]] void fail_rows(fmt::format_string<Arguments...> text, Arguments&&... arguments) {
  throw Exception(ErrorKind::corrupted, fmt::format(text, std::forward<Arguments>(arguments)...));
}

}  // namespace

RowCore::RowCore(int workers, std::int64_t staleness, RowActions& actions)
    : staleness_(staleness), actions_(actions), workers_(static_cast<std::size_t>(workers)) {
  constexpr std::int64_t kManyBatches = 1'000'000;
  if (workers < 1) refuse("rows are served to {} workers; there must be one", workers);
  if (staleness < 0 || staleness > kManyBatches) {
    refuse("an embedding's staleness is {}; 0 to {} are possible", staleness, kManyBatches);
  }
}

RowCore::Worker& RowCore::checked(Rank worker) {
  if (worker < 0 || worker >= static_cast<Rank>(workers_.size())) {
    fail_rows("worker {} of {} asks for rows", worker, workers_.size());
  }
  return workers_[static_cast<std::size_t>(worker)];
}

void RowCore::on_look_up(Rank rank, std::int64_t clock) {
  Worker& worker = checked(rank);
  if (clock != worker.looked) {
    fail_rows("worker {} looks up batch {}; its next is {}", rank, clock, worker.looked);
  }
  if (clock > worker.updated + staleness_) {
    fail_rows("worker {} looks up batch {}, and has pushed {} updates: more than {} permits", rank,
              clock, worker.updated, staleness_ + 1);
  }
  if (!worker.lives) return;
  ++worker.looked;
  settle();
}

void RowCore::on_update(Rank rank, std::int64_t clock, UpdateId update) {
  Worker& worker = checked(rank);
  if (clock != worker.updated || clock >= worker.answered(version_)) {
    fail_rows("worker {} pushes update {}; its next is {}, and {} of its look-ups are answered",
              rank, clock, worker.updated, worker.answered(version_));
  }
  ++worker.updated;
  worker.updates.push_back(update);
  settle();
}

void RowCore::on_read(Rank rank) {
  Worker& worker = checked(rank);
  if (worker.reads) fail_rows("worker {} reads rows before its last read is answered", rank);
  worker.reads = worker.lives;
  settle();
}

void RowCore::on_gone(Rank rank) {
  Worker& worker = checked(rank);
  worker.lives = worker.reads = false;
  worker.looked = worker.answered(version_);
  settle();
}

bool RowCore::is_complete() const {
  const auto has_update = [](const Worker& worker) { return !worker.updates.empty(); };
  return std::ranges::any_of(workers_, has_update) &&
         std::ranges::all_of(
             workers_, [&](const Worker& worker) { return !worker.lives || has_update(worker); });
}

void RowCore::apply() {
  std::vector<UpdateId> updates;
  for (Worker& worker : workers_) {
    if (!worker.updates.empty()) {
      updates.push_back(worker.updates.front());
      worker.updates.pop_front();
      all_.add(version_ - worker.answers.front());
    }
    // A lost worker's permit of a batch that it did not push ends with the step, too.
    if (!worker.answers.empty()) worker.answers.pop_front();
  }
  actions_.apply(updates);
  ++version_;
}

void RowCore::answer() {
  for (std::size_t i = 0; i < workers_.size(); ++i) {
    Worker& worker = workers_[i];
    const auto rank = static_cast<Rank>(i);
    while (worker.lives && worker.answered(version_) < worker.looked &&
           worker.answered(version_) - staleness_ <= version_) {
      worker.answers.push_back(version_);
      const auto permits = static_cast<std::int64_t>(worker.answers.size());
      max_permits_ = std::max(max_permits_, permits);
      actions_.answer_look_up(rank, version_);
    }
    if (worker.reads && worker.updates.empty()) {
      worker.reads = false;
      actions_.answer_read(rank);
    }
  }
}

/// Answers between steps, so that no look-up sees a later step than it must.
void RowCore::settle() {
  answer();
  while (is_complete()) {
    apply();
    answer();
  }
}

}  // namespace gradwire::servers
