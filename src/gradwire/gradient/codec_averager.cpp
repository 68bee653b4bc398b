#include "gradwire/gradient/codec_averager.h"

#include <exception>
#include <optional>
#include <utility>

#include "gradwire/gradient/averager_arguments.h"

namespace gradwire {

CodecAverager::CodecAverager(std::shared_ptr<Communicator> communicator,
                             std::vector<BucketShape> buckets, const AveragerOptions& options)
    : communicator_(std::move(communicator)),
      buckets_(std::move(buckets)),
      options_(options),
      in_flight_(buckets_.size()),
      plain_(buckets_.size()),
      tracker_(std::make_shared<BucketTracker>(buckets_.size())),
      worker_(std::make_unique<CodecWorker>()),
      queue_(worker_->queue()) {
  check_codable(buckets_, options_.codec);
}

CodecAverager::~CodecAverager() = default;

void CodecAverager::start(std::size_t bucket, LentSpan data, int priority) {
  check_start(buckets_, bucket, data);
  const std::size_t pieces = pieces_of(bucket);
  if (!coded_ || !is_ready() || pieces == 0) return start_plain(bucket, data, priority);
  tracker_->begin(bucket, pieces);
  const std::span<float> values(static_cast<float*>(data.data), data.count);
  in_flight_[bucket] = {values, priority, std::move(data.keep_alive)};
  begin_coded(bucket);
}

void CodecAverager::start_plain(std::size_t bucket, const LentSpan& data, int priority) {
  tracker_->begin(bucket, 1);
  if (pieces_of(bucket) > 0) {
    apply_residuals(bucket, std::span(static_cast<float*>(data.data), data.count));
  }
  const Work work = communicator_->all_reduce(
      data, ReduceOp::mean,
      {.priority = priority, .lane = first_lane_, .timeout = options_.timeout});
  plain_[bucket] = work;
  work.on_done([tracker = tracker_, bucket](const Work& done) {
    if (const auto error = done.error()) return tracker->fail(*error);
    tracker->piece_done(bucket);
  });
}

bool CodecAverager::done(std::size_t bucket) {
  const Work& plain = plain_.at(bucket);
  return tracker_->done(bucket) && (!plain.valid() || plain.done());
}

void CodecAverager::wait(std::size_t bucket) {
  const Work plain = std::exchange(plain_.at(bucket), Work());
  try {
    tracker_->wait(bucket);
  } catch (const Exception&) {
    // The network may still write to this bucket, as the failure may be another bucket's.
    if (plain.valid()) plain.wait();
    throw;
  }
  in_flight_[bucket] = {};
}

void CodecAverager::end_step() {
  ++step_;
}

void CodecAverager::reserve_lanes(std::size_t count) {
  first_lane_ = communicator_->reserve_lanes(1 + static_cast<int>(count));
}

OperationOptions CodecAverager::operation(std::size_t bucket, int lane) const {
  return {.priority = in_flight_[bucket].priority,
          .lane = first_lane_ + 1 + lane,
          .timeout = options_.timeout};
}

void CodecAverager::add_task(std::size_t bucket, Stage stage, std::function<void()> task) {
  queue_->add(in_flight_[bucket].priority, stage, [this, task = std::move(task)] { run(task); });
}

void CodecAverager::add_task_after(const Work& work, std::size_t bucket, Stage stage,
                                   std::function<void()> task) {
  work.on_done([this, tracker = tracker_, queue = queue_, stage,
                priority = in_flight_[bucket].priority,
                task = std::move(task)](const Work& done) mutable {
    if (const auto error = done.error()) return tracker->fail(*error);
    queue->add(priority, stage, [this, task = std::move(task)] { run(task); });
  });
}

void CodecAverager::run(const std::function<void()>& task) {
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

}  // namespace gradwire
