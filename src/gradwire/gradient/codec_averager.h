#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "gradwire/gradient/averager.h"
#include "gradwire/gradient/averager_board.h"
#include "gradwire/gradient/codec_worker.h"
#include "gradwire/gradient/make_averager.h"

namespace gradwire {

/// What averagers that change what travels have in common: buckets that travel as they are, because
/// they must or because the codec is off; and stages, each a task of the worker that ends by
/// posting an operation, whose completion brings the next.
class CodecAverager : public Averager {
 public:
  ~CodecAverager() override;

  void start(std::size_t bucket, LentSpan data, int urgency) final;
  bool done(std::size_t bucket) final;
  void wait(std::size_t bucket) final;
  void end_step() override;
  void on_finished(std::function<void(std::size_t bucket)> finished) final {
    board_->on_finished(std::move(finished));
  }

  /// Whether the codec applies, from the next start() on. While it does not, what it owes travels
  /// with the gradients. Call between steps, on all ranks alike.
  void use_codec(bool yes) { coded_ = yes; }

 protected:
  CodecAverager(std::shared_ptr<Communicator> communicator, std::vector<BucketShape> buckets,
                const AveragerOptions& options);

  /// Order of tasks of the same urgency.
  enum Stage : int { kFirst, kSecond, kThird };

  struct Coded {
    std::span<float> data;
    int urgency = 0;
    std::shared_ptr<const void> keep_alive;
  };

  /// Whether the codec applies in this step, if it is used.
  virtual bool is_ready() const { return true; }
  /// Pieces of a bucket that end by themselves: none, if it never is coded.
  virtual std::size_t pieces_of(std::size_t bucket) const = 0;
  /// Adds the first tasks of its pieces.
  virtual void begin_coded(std::size_t bucket) = 0;
  /// Adds what is owed to gradients that are about to travel as they are.
  virtual void pay(std::size_t bucket, std::span<float> gradients) = 0;

  /// Has the worker do `task` unless something has failed. What it throws fails everything.
  void add_task(std::size_t bucket, Stage stage, std::function<void()> task);
  /// The same when `work` is complete.
  void add_task_after(const Work& work, std::size_t bucket, Stage stage,
                      std::function<void()> task);
  void piece_done(std::size_t bucket) { board_->piece_done(bucket); }

  /// To be called once, before anything is started: lanes 0 to count - 1 are this averager's own.
  void reserve_lanes(std::size_t count);
  OperationOptions operation(std::size_t bucket, int lane) const;
  const Coded& coded(std::size_t bucket) const { return under_way_[bucket]; }
  std::int64_t& step() { return step_; }
  std::int64_t step() const { return step_; }

  Communicator& communicator() const { return *communicator_; }
  const std::vector<BucketShape>& buckets() const { return buckets_; }
  const AveragerOptions& options() const { return options_; }

  /// Ends the worker: to be called first thing by the destructors of those whose tasks it does.
  void stop() { worker_.reset(); }

 private:
  void start_plain(std::size_t bucket, const LentSpan& data, int urgency);
  void run(const std::function<void()>& task);

  std::shared_ptr<Communicator> communicator_;
  std::vector<BucketShape> buckets_;
  AveragerOptions options_;
  int first_lane_ = 0;  ///< That of gradients that travel as they are; behind it the pieces'.
  bool coded_ = true;
  std::int64_t step_ = 0;  ///< end_step() calls so far.
  std::vector<Coded> under_way_;
  std::vector<Work> plain_;               ///< Per bucket; not valid: it did not start as it is.
  std::shared_ptr<AveragerBoard> board_;  ///< Operations that end late have it too.
  std::unique_ptr<CodecWorker> worker_;
  std::shared_ptr<TaskQueue> queue_;  ///< The worker's; tasks add others while it ends.
};

}  // namespace gradwire
