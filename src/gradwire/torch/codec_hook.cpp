#include "gradwire/torch/codec_hook.h"

#include <algorithm>

#include <fmt/format.h>

#include "gradwire/base/refuse.h"
#include "gradwire/comm/communicator.h"
#include "gradwire/torch/tensor_span.h"

namespace gradwire {
namespace {

using FuturePointer = CodecHook::FuturePointer;

ArgumentName bucket_of(Rank rank) {
  return {"gradient hook", "bucket", rank};
}

exchange::UnitShape shape_of(const c10d::GradBucket& bucket, Rank rank) {
  exchange::UnitShape shape;
  const at::Tensor& buffer = bucket.getBuffer();
  shape.count = static_cast<std::size_t>(buffer.numel());
  shape.type = reducible_type_of(buffer, bucket_of(rank));
  shape.skip_compression = shape.type != DataType::float32;
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

bool alike(const exchange::UnitShape& a, const exchange::UnitShape& b) {
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

CodecHook::CodecHook(std::shared_ptr<Communicator> communicator, exchange::ExchangeOptions options,
                     std::shared_ptr<HybridCollectives> hybrid)
    : communicator_(std::move(communicator)),
      options_(std::move(options)),
      hybrid_(std::move(hybrid)),
      staged_(communicator_->rank()) {
  if (hybrid_) refuse_codec_of_matrices(options_.codec);
  // Reports an unknown codec here instead of in the third step. Without buckets there is no
  // traffic.
  exchange::make_exchange(communicator_, {}, options_);
}

FuturePointer CodecHook::run(const c10d::GradBucket& bucket) {
  if (!communicator_) throw Exception(ErrorKind::aborted, "the gradient hook has been closed");
  check_shape(bucket);
  const PendingBucket pending{bucket.getIndex(), bucket.isLast(), trace_begin(bucket)};
  const at::Tensor& buffer = bucket.getBuffer();
  return hybrid_ ? average_in_two_levels(buffer, pending) : average_anywhere(buffer, pending);
}

/// Records the bucket's shape in the first steps; the codec starts after them.
void CodecHook::check_shape(const c10d::GradBucket& bucket) {
  const std::size_t index = bucket.getIndex();
  exchange::UnitShape shape = shape_of(bucket, communicator_->rank());
  if (hybrid_) {
    shape.count = static_cast<std::size_t>(hybrid_->part_of(bucket.getBuffer().numel()));
    shape.tensors = {{.name = fmt::format("bucket{}", index), .columns = shape.count}};
  }
  if (steps_ < kPlainSteps) {
    // Buckets arrive in order; there may be fewer than in the previous step.
    shapes_.resize(index + 1);
    shapes_[index] = std::move(shape);
    return;
  }
  if (!exchange_) begin();
  if (index >= shapes_.size() || !alike(shapes_[index], shape)) {
    refuse(
        "rank {}: bucket {} of DistributedDataParallel has changed since "
        "step {}; a codec requires the same buckets in every step",
        communicator_->rank(), index, kPlainSteps);
  }
}

/// Starts averaging values in host memory. Returns a function that waits for the mean.
std::function<void()> CodecHook::average(const at::Tensor& values, const PendingBucket& pending) {
  LentSpan span = lend(values, bucket_of(communicator_->rank()));
  const Work work = exchange_ ? exchange_->all_reduce(pending.index, std::move(span),
                                                      static_cast<int>(pending.index))
                              : communicator_->all_reduce(std::move(span), ReduceOp::mean);
  return [this, work, pending] {
    work.wait();
    if (pending.trace_end) pending.trace_end();
    if (pending.last) end_step();
  };
}

FuturePointer CodecHook::average_anywhere(const at::Tensor& values, const PendingBucket& pending) {
  return values.is_cpu() ? average_on_host(values, pending) : average_staged(values, pending);
}

FuturePointer CodecHook::average_in_two_levels(const at::Tensor& values,
                                               const PendingBucket& pending) {
  // Runs on a thread of the collective's, perhaps after close().
  const auto between = [self = shared_from_this(), pending](const at::Tensor& part,
                                                            const at::Tensor&) {
    const std::lock_guard lock(self->mutex_);
    if (self->is_closed_) throw Exception(ErrorKind::aborted, "the gradient hook has been closed");
    return [mean = self->average_anywhere(part, pending)] { mean->waitAndThrow(); };
  };
  return hybrid_->all_reduce(values, {.mean = true}, between)->getFuture();
}

FuturePointer CodecHook::average_on_host(const at::Tensor& values, const PendingBucket& pending) {
  auto future = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::ofTensors());
  waiter_.run([wait = average(values, pending), future, values] {
    try {
      wait();
      future->markCompleted(c10::IValue(TensorList{values}));
    } catch (...) {
      future->setError(std::current_exception());
    }
  });
  return future;
}

/// Averages values on a device: buckets are passed to the exchange in order, as their copies
/// complete.
FuturePointer CodecHook::average_staged(const at::Tensor& values, const PendingBucket& pending) {
  const auto begin = [this, pending](const TensorList& on_host, const TensorList&) {
    return average(on_host.front(), pending);
  };
  return staged_.run(c10d::OpType::ALLREDUCE, {values}, {values}, begin, {values})->getFuture();
}

/// Returns a function that ends a bucket's trace span; it may be empty.
std::function<void()> CodecHook::trace_begin(const c10d::GradBucket& bucket) const {
  if (!recorder_) return {};
  return [recorder = recorder_, step = recorder_->step(), begin = recorder_->now(),
          name = fmt::format("bucket {}", bucket.getIndex()), bytes = bucket.getBuffer().nbytes(),
          last = bucket.isLast()] {
    const Time now = recorder->now();
    recorder->record(TraceKind::communication, name, step, begin, now, bytes);
    if (last) recorder->record(TraceKind::wait, {}, step, begin, now);
  };
}

/// Runs before DDP sees its last bucket complete, so no work of the next step runs yet.
void CodecHook::end_step() {
  if (exchange_) exchange_->end_pass();
  ++steps_;
}

namespace {

void load_into(exchange::Exchange& exchange, const CodecHook::SavedTensors& tensors, Rank rank) {
  std::vector<exchange::Exchange::SavedState> saved;
  for (const auto& [name, tensor] : tensors) {
    saved.push_back({name, lend(tensor, {"gradient hook", "state", rank})});
  }
  exchange.load_state(saved);
}

}  // namespace

/// Creates the exchange, as the buckets are known, and restores the saved state.
void CodecHook::begin() {
  auto exchange = exchange::make_exchange(communicator_, shapes_, options_);
  load_into(*exchange, saved_, communicator_->rank());
  exchange_ = std::move(exchange);
  saved_.clear();
}

std::string CodecHook::describe() const {
  if (exchange_) return exchange_->describe();
  return fmt::format("gradients are sent uncompressed; codec {} applies from step {}",
                     options_.codec, kPlainSteps);
}

CodecHook::SavedTensors CodecHook::state() const {
  if (!exchange_) return saved_;
  SavedTensors copies;
  for (const auto& [name, data] : exchange_->state()) copies.emplace_back(name, copy_of(data));
  return copies;
}

void CodecHook::load_state(SavedTensors saved) {
  for (auto& [name, tensor] : saved) tensor = tensor.cpu().contiguous();
  if (exchange_) {
    load_into(*exchange_, saved, communicator_->rank());
  } else {
    saved_ = std::move(saved);
  }
}

void CodecHook::close() {
  {
    const std::lock_guard lock(mutex_);
    is_closed_ = true;
  }
  hybrid_.reset();
  staged_.close();
  waiter_.close();
  exchange_.reset();
  communicator_.reset();
}

std::unique_ptr<c10d::CommHookInterface> as_ddp_hook(std::shared_ptr<CodecHook> hook) {
  return std::make_unique<DdpHook>(std::move(hook));
}

}  // namespace gradwire
