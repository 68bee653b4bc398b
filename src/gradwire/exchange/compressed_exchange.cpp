#include "gradwire/exchange/compressed_exchange.h"

#include <cstring>
#include <exception>
#include <optional>
#include <utility>

#include "gradwire/base/refuse.h"

namespace gradwire::exchange {

/// A unit that passes through the codec's stages.
class CompressedExchange::CodedWork final : public WorkState {
 public:
  CodedWork(CompressedExchange& exchange, std::size_t unit, LentSpan shard)
      : exchange_(exchange), tracker_(exchange.tracker_), unit_(unit), shard_(std::move(shard)) {}

  bool done() override { return tracker_->done(unit_); }
  void wait() override {
    tracker_->wait(unit_);
    if (shard_.data != nullptr) copy_shard();
    exchange_.in_flight_[unit_] = {};
  }
  void on_done(std::function<void(const Work&)> callback) override {
    // The tracker may outlive the handles.
    tracker_->on_done(unit_, [self = weak_from_this(), callback = std::move(callback)] {
      callback(Work(self.lock()));
    });
  }

 private:
  /// Takes this rank's part of the mean from its place in the unit.
  void copy_shard() const {
    const auto rank = static_cast<std::size_t>(exchange_.communicator_->rank());
    const float* own = exchange_.in_flight_[unit_].data.data() + rank * shard_.count;
    if (own != shard_.data) std::memcpy(shard_.data, own, shard_.count * sizeof(float));
  }

  CompressedExchange& exchange_;
  std::shared_ptr<UnitTracker> tracker_;
  std::size_t unit_;
  LentSpan shard_;  ///< Shard of a reduce-scatter; else empty.
};

CompressedExchange::CompressedExchange(std::unique_ptr<Exchange> plain,
                                       std::shared_ptr<Communicator> communicator,
                                       std::vector<UnitShape> units, const ExchangeOptions& options)
    : plain_(std::move(plain)),
      communicator_(std::move(communicator)),
      units_(std::move(units)),
      options_(options),
      in_flight_(units_.size()),
      tracker_(std::make_shared<UnitTracker>(units_.size())),
      worker_(std::make_unique<CodecWorker>()),
      queue_(worker_->queue()) {
  check_codable(units_, options_.codec);
}

CompressedExchange::~CompressedExchange() = default;

ExchangeTraits CompressedExchange::traits() const {
  ExchangeTraits traits = plain_->traits();
  traits.has_state = true;
  return traits;
}

bool CompressedExchange::is_coded(std::size_t unit) const {
  return coded_ && is_ready() && pieces_of(unit) > 0;
}

/// Pieces and residuals are laid out for one kind of reduction.
void CompressedExchange::require_kind(bool sharded, std::size_t unit) const {
  if (pieces_of(unit) == 0 || sharded == options_.sharded) return;
  refuse(
      "bucket {}: this exchange compresses {} only; set "
      "ExchangeOptions::sharded accordingly",
      unit, options_.sharded ? "reduce-scatters" : "all-reduces");
}

/// The first step starts from the state before it.
void CompressedExchange::keep_state() {
  if (options_.can_abandon) committed_.emplace(state());
}

void CompressedExchange::end_step(StepOutcome outcome) {
  if (outcome == StepOutcome::committed) return keep_state();
  if (!options_.can_abandon) {
    refuse("a step with codec {} is abandoned; set ExchangeOptions::can_abandon", options_.codec);
  }
  if (committed_) restore(committed_->saved());
}

void CompressedExchange::load_state(const std::vector<SavedState>& saved) {
  restore(saved);
  keep_state();
}

void CompressedExchange::add_residuals(std::size_t unit, const LentSpan& data) {
  if (pieces_of(unit) == 0) return;
  apply_residuals(unit, std::span(static_cast<float*>(data.data), data.count));
}

Work CompressedExchange::all_reduce(std::size_t unit, LentSpan data, int priority) {
  check_unit(units_, unit, data);
  require_kind(/*sharded=*/false, unit);
  if (!committed_) keep_state();
  if (is_coded(unit)) return start_coded(unit, std::move(data), {}, priority);
  add_residuals(unit, data);
  return plain_->all_reduce(unit, std::move(data), priority);
}

Work CompressedExchange::reduce_scatter(std::size_t unit, LentSpan data, LentSpan shard,
                                        int priority) {
  check_unit(units_, unit, data);
  check_shards("reduction", unit, data.count, shard.count, communicator_->size());
  require_kind(/*sharded=*/true, unit);
  if (!committed_) keep_state();
  if (is_coded(unit)) return start_coded(unit, std::move(data), std::move(shard), priority);
  add_residuals(unit, data);
  return plain_->reduce_scatter(unit, std::move(data), std::move(shard), priority);
}

Work CompressedExchange::all_gather(std::size_t unit, LentConstSpan shard, LentSpan data,
                                    int priority) {
  return plain_->all_gather(unit, std::move(shard), std::move(data), priority);
}

Work CompressedExchange::start_coded(std::size_t unit, LentSpan data, LentSpan shard,
                                     int priority) {
  tracker_->begin(unit, pieces_of(unit));
  const std::span<float> values(static_cast<float*>(data.data), data.count);
  in_flight_[unit] = {values, priority, std::move(data.keep_alive)};
  begin_coded(unit);
  return Work(std::make_shared<CodedWork>(*this, unit, std::move(shard)));
}

void CompressedExchange::reserve_lanes(std::size_t count) {
  first_lane_ = communicator_->reserve_lanes(static_cast<int>(count));
}

OperationOptions CompressedExchange::operation(std::size_t unit, int lane) const {
  return {.priority = in_flight_[unit].priority,
          .lane = first_lane_ + lane,
          .timeout = options_.timeout};
}

void CompressedExchange::add_task(std::size_t unit, Stage stage, std::function<void()> task) {
  queue_->add(in_flight_[unit].priority, stage, [this, task = std::move(task)] { run(task); });
}

void CompressedExchange::add_task_after(const Work& work, std::size_t unit, Stage stage,
                                        std::function<void()> task) {
  work.on_done([this, tracker = tracker_, queue = queue_, stage,
                priority = in_flight_[unit].priority,
                task = std::move(task)](const Work& done) mutable {
    if (const auto error = done.error()) return tracker->fail(*error);
    queue->add(priority, stage, [this, task = std::move(task)] { run(task); });
  });
  work.drive_in_background();
}

void CompressedExchange::run(const std::function<void()>& task) {
  if (!tracker_->begin_access()) return;
  std::optional<Error> error;
  try {
    task();
  } catch (const Exception& e) {
    error = {e.kind(), e.what()};
  } catch (const std::exception& e) {
    error = {ErrorKind::system, e.what()};
  }
  if (error) {
    tracker_->fail(*error);
    communicator_->abort(error->message);  // Tells the other ranks.
  }
  tracker_->end_access();
}

}  // namespace gradwire::exchange
