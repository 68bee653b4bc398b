#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "gradwire/gradient/averager.h"
#include "gradwire/gradient/bucket_tracker.h"
#include "gradwire/gradient/codec_worker.h"
#include "gradwire/gradient/make_averager.h"

namespace gradwire {

/// Common base of averagers with codecs. Buckets are sent uncompressed if they must be or if the
/// codec is off. Otherwise a bucket passes through stages. Each stage is a task of the worker that
/// ends by posting an operation, whose completion queues the next stage.
class CodecAverager : public Averager {
 public:
  ~CodecAverager() override;

  void start(std::size_t bucket, LentSpan data, int priority) final;
  bool done(std::size_t bucket) final;
  void wait(std::size_t bucket) final;
  void end_step() override;
  void on_finished(std::function<void(std::size_t bucket)> finished) final {
    tracker_->on_finished(std::move(finished));
  }

  /// Switches the codec on or off, from the next start() on. While it is off, the error-feedback
  /// residual is added to the gradients. Called between steps, on all ranks alike.
  void use_codec(bool yes) { coded_ = yes; }

 protected:
  CodecAverager(std::shared_ptr<Communicator> communicator, std::vector<BucketShape> buckets,
                const AveragerOptions& options);

  /// Orders tasks of equal priority.
  enum Stage : int { kFirst, kSecond, kThird };

  struct Coded {
    std::span<float> data;
    int priority = 0;
    std::shared_ptr<const void> keep_alive;
  };

  /// Returns true if the codec applies in this step when it is switched on.
  virtual bool is_ready() const { return true; }
  /// Number of pieces of a bucket that complete independently; 0 if the bucket is never coded.
  virtual std::size_t pieces_of(std::size_t bucket) const = 0;
  /// Queues the first task of each piece.
  virtual void begin_coded(std::size_t bucket) = 0;
  /// Adds the error-feedback residual to gradients that are about to be sent uncompressed.
  virtual void apply_residuals(std::size_t bucket, std::span<float> gradients) = 0;

  /// Queues `task` for the worker; it is skipped after a failure. An exception from it fails the
  /// averager and aborts the communicator.
  void add_task(std::size_t bucket, Stage stage, std::function<void()> task);
  /// Queues `task` when `work` is complete.
  void add_task_after(const Work& work, std::size_t bucket, Stage stage,
                      std::function<void()> task);
  void piece_done(std::size_t bucket) { tracker_->piece_done(bucket); }

  /// Reserves lanes 0 to count - 1 for this averager. Called once, before any bucket is started.
  void reserve_lanes(std::size_t count);
  OperationOptions operation(std::size_t bucket, int lane) const;
  const Coded& coded(std::size_t bucket) const { return in_flight_[bucket]; }
  std::int64_t& step() { return step_; }
  std::int64_t step() const { return step_; }

  Communicator& communicator() const { return *communicator_; }
  const std::vector<BucketShape>& buckets() const { return buckets_; }
  const AveragerOptions& options() const { return options_; }

  /// Stops the worker. Called first by the destructor of every derived class whose tasks it runs.
  void stop() { worker_.reset(); }

 private:
  void start_plain(std::size_t bucket, const LentSpan& data, int priority);
  void run(const std::function<void()>& task);

  std::shared_ptr<Communicator> communicator_;
  std::vector<BucketShape> buckets_;
  AveragerOptions options_;
  int first_lane_ = 0;  ///< Lane of uncompressed gradients; the pieces' lanes follow.
  bool coded_ = true;
  std::int64_t step_ = 0;  ///< Number of end_step() calls.
  std::vector<Coded> in_flight_;
  std::vector<Work> plain_;                 ///< Per bucket; invalid unless sent uncompressed.
  std::shared_ptr<BucketTracker> tracker_;  ///< Shared with operations, which may end later.
  std::unique_ptr<CodecWorker> worker_;
  std::shared_ptr<TaskQueue> queue_;  ///< The worker's; tasks add to it while it shuts down.
};

}  // namespace gradwire
