#include "gradwire/train/codec_hook.h"

#include <algorithm>

#include <fmt/format.h>

#include "gradwire/torch/tensor_span.h"

namespace gradwire {
namespace {

using FuturePointer = c10::intrusive_ptr<c10::ivalue::Future>;

LentSpan lend_bucket(const at::Tensor& buffer, Rank rank) {
  return lend(buffer, {"gradient hook", "bucket", rank});
}

BucketShape shape_of(const c10d::GradBucket& bucket, Rank rank) {
  BucketShape shape;
  const at::Tensor& buffer = bucket.getBuffer();
  shape.count = static_cast<std::size_t>(buffer.numel());
  shape.type = lend_bucket(buffer, rank).type;
  shape.exact = shape.type != DataType::float32;
  std::size_t offset = 0;
  for (const at::Tensor& gradient : bucket.getGradients()) {
    const auto elements = static_cast<std::size_t>(gradient.numel());
    const auto rows = gradient.dim() == 0 ? 1 : static_cast<std::size_t>(gradient.size(0));
    const auto name = fmt::format("bucket{}.{}", bucket.getIndex(), shape.tensors.size());
    shape.tensors.push_back({name, offset, rows, rows == 0 ? 0 : elements / rows});
    offset += elements;
  }
  return shape;
}

bool alike(const BucketShape& a, const BucketShape& b) {
  return a.count == b.count && a.type == b.type && a.tensors.size() == b.tensors.size();
}

class DdpHook final : public c10d::CommHookInterface {
 public:
  explicit DdpHook(std::shared_ptr<CodecHook> hook) : hook_(std::move(hook)) {}

  FuturePointer runHook(c10d::GradBucket& bucket) override { return hook_->run(bucket); }
  at::Tensor parseHookResult(const c10::IValue& result) override {
    return c10d::detail::parseCppCommHookResult(result);
  }

 private:
  std::shared_ptr<CodecHook> hook_;
};

}  // namespace

CodecHook::CodecHook(std::shared_ptr<Communicator> communicator, AveragerOptions options)
    : communicator_(std::move(communicator)), options_(std::move(options)) {
  // A wrong codec is an error now, not in the third step: no buckets, no traffic.
  make_averager(communicator_, {}, options_);
}

FuturePointer CodecHook::run(const c10d::GradBucket& bucket) {
  if (!communicator_) throw Exception(ErrorKind::aborted, "the gradient hook has been closed");
  const std::size_t index = bucket.getIndex();
  const at::Tensor buffer = bucket.getBuffer();
  BucketShape shape = shape_of(bucket, communicator_->rank());
  if (steps_ < kPlainSteps) {
    shapes_.resize(index + 1);  // They come in order, and may be fewer than in the step before.
    shapes_[index] = std::move(shape);
    const auto span = lend_bucket(buffer, communicator_->rank());
    const Work work = communicator_->all_reduce(span, ReduceOp::mean);
    return when_waited([work] { work.wait(); }, bucket);
  }
  if (!averager_) begin();
  if (index >= shapes_.size() || !alike(shapes_[index], shape)) {
    throw Exception(ErrorKind::invalid_argument,
                    fmt::format("rank {}: bucket {} of DistributedDataParallel has changed since "
                                "step {}: gradients with a codec need the same buckets every step",
                                communicator_->rank(), index, kPlainSteps));
  }
  averager_->start(index, lend_bucket(buffer, communicator_->rank()), static_cast<int>(index));
  return when_waited([this, index] { averager_->wait(index); }, bucket);
}

namespace {

/// One bucket in a trace.
struct BucketSpan {
  TraceRecorder* recorder = nullptr;
  std::int64_t step = -1;
  Time begin{};
  std::string name;
  std::size_t bytes = 0;
  bool last = false;

  void end() const {
    if (!recorder) return;
    const Time now = recorder->now();
    recorder->record(TraceKind::communication, name, step, begin, now, bytes);
    if (last) recorder->record(TraceKind::wait, {}, step, begin, now);
  }
};

BucketSpan span_of(TraceRecorder* recorder, const c10d::GradBucket& bucket) {
  if (!recorder) return {};
  return {.recorder = recorder,
          .step = recorder->step(),
          .begin = recorder->now(),
          .name = fmt::format("bucket {}", bucket.getIndex()),
          .bytes = bucket.getBuffer().nbytes(),
          .last = bucket.isLast()};
}

}  // namespace

FuturePointer CodecHook::when_waited(std::function<void()> wait, const c10d::GradBucket& bucket) {
  auto future = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::ofTensors());
  waiter_.run([this, wait = std::move(wait), future, buffer = bucket.getBuffer(),
               last = bucket.isLast(), span = span_of(recorder_.get(), bucket)] {
    try {
      wait();
      span.end();
      if (last) end_step();
      future->markCompleted(c10::IValue(std::vector<at::Tensor>{buffer}));
    } catch (...) {
      future->setError(std::current_exception());
    }
  });
  return future;
}

/// Before DDP learns that its last bucket is there, so that nothing of the next step runs yet.
void CodecHook::end_step() {
  if (averager_) averager_->end_step();
  ++steps_;
}

/// The buckets are known; what an earlier run left comes back.
void CodecHook::begin() {
  averager_ = make_averager(communicator_, shapes_, options_);
  std::vector<Averager::SavedState> saved;
  for (const auto& [name, tensor] : saved_) {
    saved.push_back({name, lend(tensor, {"gradient hook", "state", communicator_->rank()})});
  }
  averager_->load_state(saved);
  saved_.clear();
}

std::string CodecHook::describe() const {
  if (averager_) return averager_->describe();
  return fmt::format("gradients travel as they are; with codec {} from step {}", options_.codec,
                     kPlainSteps);
}

std::vector<std::pair<std::string, at::Tensor>> CodecHook::state() const {
  if (!averager_) return saved_;
  std::vector<std::pair<std::string, at::Tensor>> copies;
  for (const auto& [name, data] : averager_->state()) copies.emplace_back(name, copy_of(data));
  return copies;
}

void CodecHook::load_state(std::vector<std::pair<std::string, at::Tensor>> saved) {
  saved_ = std::move(saved);
  if (averager_) begin();
}

void CodecHook::close() {
  waiter_.close();
  averager_.reset();
  communicator_.reset();
}

std::unique_ptr<c10d::CommHookInterface> as_ddp_hook(std::shared_ptr<CodecHook> hook) {
  return std::make_unique<DdpHook>(std::move(hook));
}

}  // namespace gradwire
