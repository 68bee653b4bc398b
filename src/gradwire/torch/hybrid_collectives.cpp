#include "gradwire/torch/hybrid_collectives.h"

#include <algorithm>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "gradwire/base/refuse.h"
#include "gradwire/torch/c10d_work.h"
#include "gradwire/torch/group_backend.h"
#include "gradwire/torch/tensor_work.h"

namespace gradwire {
namespace {

using Wait = HybridCollectives::Wait;
using WorkPointer = HybridCollectives::WorkPointer;
using HybridGuard = c10::impl::VirtualGuardImpl;

/// The bytes of a contiguous 1-D tensor.
at::Tensor bytes_of(const at::Tensor& flat) {
  return flat.view(at::kByte);
}

/// The elements in order, in one dimension: the tensor's own memory if it has no other strides.
at::Tensor dense_of(const at::Tensor& tensor) {
  return tensor.resolve_conj().resolve_neg().contiguous().view({-1});
}

/// The same for a tensor that is only written.
at::Tensor dense_for(const at::Tensor& tensor) {
  const bool is_dense = tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg();
  return is_dense ? tensor.view({-1}) : at::empty({tensor.numel()}, tensor.options());
}

/// Makes `stream` wait for what `before` has queued.
void follow(const c10::Stream& stream, const c10::Stream& before) {
  c10::Event reached(before.device_type());
  reached.record(before);
  reached.block(stream);
}

/// Keeps the allocator from reusing memory of the accelerator before these streams are done.
void keep_until_done(const std::vector<c10::Stream>& streams,
                     const std::vector<at::Tensor>& tensors) {
  for (const c10::Stream& stream : streams) {
    const HybridGuard guard(stream.device_type());
    for (const at::Tensor& tensor : tensors)
      guard.recordDataPtrOnStream(tensor.storage().data_ptr(), stream);
  }
}

}  // namespace

/// Calls inside that are in flight.
struct HybridCollectives::CallsInside {
  std::mutex mutex;
  std::condition_variable changed;
  int count = 0;
  bool is_aborted = false;  ///< No end is awaited any more.
};

/// A collective in flight.
struct HybridCollectives::Operation {
  c10::intrusive_ptr<ThreadWork> work;
  Streams streams;
  OperationsInFlight::Token token;
  at::Tensor result, dense;  ///< The result is copied from `dense` if it has memory of its own.
  std::mutex mutex;          ///< Guards the members below.
  std::size_t parts_left = 0;
  std::exception_ptr error;

  bool has_failed() {
    const std::lock_guard lock(mutex);
    return error != nullptr;
  }
  void fail(std::exception_ptr why) {
    const std::lock_guard lock(mutex);
    if (!error) error = std::move(why);
  }
};

HybridCollectives::HybridCollectives(HostGrid grid, InsideBackends inside,
                                     std::function<void(const std::string& why)> on_failure)
    : grid_(std::move(grid)),
      inside_(std::move(inside)),
      on_failure_(std::move(on_failure)),
      calls_(dynamic_cast<const GroupBackend*>(inside_.reductions.get()) != nullptr
                 ? nullptr
                 : std::make_shared<CallsInside>()) {}

std::int64_t HybridCollectives::part_of(std::int64_t count) const {
  return (count + grid_.places() - 1) / grid_.places();
}

/// A future that completes with the call. Not all of Gloo's calls have one.
HybridCollectives::FuturePointer HybridCollectives::end_of(const WorkPointer& work) const {
  try {
    return work->getFuture();
  } catch (const std::exception&) {
    auto end = c10::make_intrusive<c10::ivalue::Future>(c10::NoneType::get());
    waits_->run([work, end] {
      try {
        work->wait();
        end->markCompleted();
      } catch (...) {
        end->setError(std::current_exception());
      }
    });
    return end;
  }
}

/// Waits for a call inside, which may never end once a rank of the host has failed.
Wait HybridCollectives::wait_of(WorkPointer work) const {
  if (!calls_) return [work = std::move(work)] { with_our_errors([&] { work->wait(); }); };
  {
    const std::lock_guard lock(calls_->mutex);
    ++calls_->count;
  }
  const FuturePointer end = end_of(work);
  end->addCallback([calls = calls_](c10::ivalue::Future&) {
    const std::lock_guard lock(calls->mutex);
    --calls->count;
    calls->changed.notify_all();
  });
  return [work = std::move(work), end, calls = calls_] {
    {
      std::unique_lock lock(calls->mutex);
      calls->changed.wait(lock, [&] { return end->completed() || calls->is_aborted; });
    }
    if (!end->completed())
      throw Exception(ErrorKind::aborted, "the group ended while ranks of this host communicated");
    with_our_errors([&] { work->wait(); });
  };
}

Wait HybridCollectives::reduce_inside(const at::Tensor& data, const at::Tensor& part,
                                      const Reduction& reduction) {
  c10d::ReduceScatterOptions options;
  options.reduceOp = reduction.op;
  if (reduction.timeout.count() > 0) options.timeout = reduction.timeout;
  at::Tensor output = part;
  at::Tensor input = data;
  return wait_of(inside_.reductions->_reduce_scatter_base(output, input, options));
}

Wait HybridCollectives::gather_inside(const at::Tensor& part, const at::Tensor& data,
                                      std::chrono::milliseconds timeout) {
  c10d::AllgatherOptions options;
  if (timeout.count() > 0) options.timeout = timeout;
  at::Tensor output = bytes_of(data);  // Backends have few types.
  at::Tensor input = bytes_of(part);
  return wait_of(inside_.gathers->_allgather_base(output, input, options));
}

/// Reduces `whole` to this rank's part inside, then between hosts into `result`.
HybridCollectives::Part HybridCollectives::reduced_part(const at::Tensor& whole,
                                                        const at::Tensor& part,
                                                        const at::Tensor& result,
                                                        const Reduction& reduction,
                                                        const Between& between) {
  // A sum of float16 may overflow although the mean does not.
  const bool divide_before = reduction.mean && whole.scalar_type() == at::kHalf;
  Part made;
  made.tensors = {whole, part, result};
  made.stages[0] = [=, this] {
    if (divide_before) whole.div_(grid_.places());
    return reduce_inside(whole, part, reduction);
  };
  made.stages[1] = [=, this] {
    if (reduction.mean && !divide_before) part.div_(grid_.places());
    return between(part, result);
  };
  return made;
}

HybridCollectives::Part HybridCollectives::all_reduced_part(const at::Tensor& data,
                                                            const Reduction& reduction,
                                                            const Between& between) {
  const std::int64_t count = data.numel();
  const at::Tensor part = at::empty({part_of(count)}, data.options());
  at::Tensor whole = data;
  if (part.numel() * grid_.places() != count) {
    whole = at::zeros({part.numel() * grid_.places()}, data.options());
    whole.narrow(0, 0, count).copy_(data);
  }
  Part made = reduced_part(whole, part, part, reduction, between);
  made.tensors.push_back(data);
  made.stages[2] = [=, this]() -> Wait {
    const Wait gathered = gather_inside(part, whole, reduction.timeout);
    if (whole.is_same(data)) return gathered;
    return [=] {
      gathered();
      data.copy_(whole.narrow(0, 0, count));
    };
  };
  return made;
}

WorkPointer HybridCollectives::all_reduce(const at::Tensor& data, const Reduction& reduction,
                                          const Between& between, std::size_t segment_bytes,
                                          OperationsInFlight::Token token) {
  const at::AutoDispatchBelowADInplaceOrView no_autograd;
  const at::Tensor flat = dense_of(data);
  // Each rank's part of a segment begins at a cache line.
  const std::int64_t line = std::int64_t{64} * grid_.places();
  const auto wanted = static_cast<std::int64_t>(std::min<std::size_t>(
      segment_bytes / flat.element_size(), static_cast<std::size_t>(flat.numel())));
  const std::int64_t width = std::max(line, (wanted + line - 1) / line * line);
  std::vector<Part> parts;
  for (std::int64_t begin = 0; begin < flat.numel(); begin += width) {
    parts.push_back(all_reduced_part(flat.narrow(0, begin, std::min(width, flat.numel() - begin)),
                                     reduction, between));
  }
  return run(c10d::OpType::ALLREDUCE, std::move(parts), data, flat, std::move(token));
}

WorkPointer HybridCollectives::reduce_scatter(const at::Tensor& data, const at::Tensor& shard,
                                              const Reduction& reduction, const Between& between,
                                              OperationsInFlight::Token token) {
  const at::AutoDispatchBelowADInplaceOrView no_autograd;
  if (shard.numel() == 0)
    return run(c10d::OpType::_REDUCE_SCATTER_BASE, {}, shard, shard, std::move(token));
  const at::Tensor flat = dense_for(shard);
  const auto hosts = static_cast<std::int64_t>(grid_.hosts.size());
  const at::Tensor rows =
      dense_of(data).view({-1, shard.numel()}).index_select(0, by_place(data.device())).view({-1});
  const at::Tensor part = at::empty({hosts * shard.numel()}, data.options());
  return run(c10d::OpType::_REDUCE_SCATTER_BASE,
             {reduced_part(rows, part, flat, reduction, between)}, shard, flat, std::move(token));
}

WorkPointer HybridCollectives::all_gather(const at::Tensor& shard, const at::Tensor& data,
                                          const Between& between, std::chrono::milliseconds timeout,
                                          OperationsInFlight::Token token) {
  const at::AutoDispatchBelowADInplaceOrView no_autograd;
  if (shard.numel() == 0)
    return run(c10d::OpType::_ALLGATHER_BASE, {}, data, data, std::move(token));
  const auto hosts = static_cast<std::int64_t>(grid_.hosts.size());
  const at::Tensor own = dense_of(shard);
  const at::Tensor all = dense_for(data);
  const at::Tensor part = at::empty({hosts * shard.numel()}, shard.options());
  const at::Tensor rows = at::empty({data.numel()}, data.options());
  const at::Tensor order = by_place(data.device());
  Part made;
  made.tensors = {own, part, rows, all, order};
  made.stages[1] = [=] { return between(own, part); };
  made.stages[2] = [=, this] {
    return [=, gathered = gather_inside(part, rows, timeout)] {
      gathered();
      const auto width = static_cast<std::int64_t>(own.nbytes());
      bytes_of(all).view({-1, width}).index_copy_(0, order, bytes_of(rows).view({-1, width}));
    };
  };
  return run(c10d::OpType::_ALLGATHER_BASE, {std::move(made)}, data, all, std::move(token));
}

/// The ranks, ordered by their places, then their hosts.
at::Tensor HybridCollectives::by_place(at::Device device) {
  std::vector<std::int64_t> ranks;
  for (std::size_t place = 0; place < grid_.hosts.front().size(); ++place)
    for (const std::vector<Rank>& host : grid_.hosts) ranks.push_back(host[place]);
  return at::tensor(ranks, at::kLong).to(device);
}

HybridCollectives::Streams HybridCollectives::streams_of(at::Device device) {
  if (device.is_cpu()) return {};
  const std::lock_guard lock(mutex_);
  Streams& streams = streams_[device.index()];
  const HybridGuard guard(device.type());
  while (streams.size() < threads_.size()) streams.push_back(guard.getStreamFromGlobalPool(device));
  return streams;
}

WorkPointer HybridCollectives::run(c10d::OpType type, std::vector<Part> parts,
                                   const at::Tensor& result, const at::Tensor& dense,
                                   OperationsInFlight::Token token) {
  if (fork_.in_child())
    refuse("this process was forked from another one and cannot use its group: make one here");
  const at::Device device = result.device();
  auto operation = std::make_shared<Operation>();
  operation->streams = streams_of(device);
  operation->token = std::move(token);
  operation->result = result;
  operation->dense = dense;
  operation->parts_left = parts.size();
  operation->work = c10::make_intrusive<ThreadWork>(inside_.reductions->getRank(), type, number_++,
                                                    std::vector<at::Tensor>{result}, callbacks_);
  if (!device.is_cpu()) {
    // The threads' streams begin after what the caller's stream has queued.
    for (const c10::Stream& stream : operation->streams)
      follow(stream, HybridGuard(device.type()).getStream(device));
  }
  if (parts.empty()) {  // There are no elements.
    operation->work->complete(nullptr);
    return operation->work;
  }
  keep_until_done(operation->streams, {result, dense});
  for (Part& part : parts) {
    keep_until_done(operation->streams, part.tensors);
    run_stage(operation, std::make_shared<Part>(std::move(part)), 0, {});
  }
  return operation->work;
}

/// Waits for the stage before, and starts this one on the same stream.
void HybridCollectives::run_stage(const std::shared_ptr<Operation>& operation,
                                  const std::shared_ptr<Part>& part, std::size_t stage,
                                  const Wait& before) {
  threads_[stage].run(with_thread_state([=, this] {
    const at::NoGradGuard no_grad;
    const at::AutoDispatchBelowADInplaceOrView no_autograd;
    if (stage == 0) enter();
    std::optional<c10::StreamGuard> current;
    if (!operation->streams.empty()) current.emplace(operation->streams[stage]);
    Wait next;
    try {
      if (before && !operation->has_failed()) before();
      if (stage < part->stages.size() && part->stages[stage] && !operation->has_failed())
        next = part->stages[stage]();
    } catch (const std::exception& error) {
      operation->fail(std::current_exception());
      on_failure_(error.what());
    }
    if (stage + 1 == threads_.size()) return end_part(*operation, *part);
    if (current) follow(operation->streams[stage + 1], operation->streams[stage]);
    run_stage(operation, part, stage + 1, next);
  }));
}

/// Returns when few enough parts are in flight: more would take the processors from the network,
/// and memory.
void HybridCollectives::enter() {
  constexpr int kPartsInFlight = 4;
  std::unique_lock lock(mutex_);
  left_.wait(lock, [this] { return in_flight_ < kPartsInFlight; });
  ++in_flight_;
}

void HybridCollectives::end_part(Operation& operation, Part& part) {
  part = {};
  {
    const std::lock_guard lock(mutex_);
    --in_flight_;
  }
  left_.notify_one();
  {
    const std::lock_guard lock(operation.mutex);
    if (--operation.parts_left > 0) return;
  }
  const bool is_copied = operation.result.numel() > 0 && !operation.error &&
                         operation.result.data_ptr() != operation.dense.data_ptr();
  if (is_copied) {
    try {
      operation.result.copy_(operation.dense.view(operation.result.sizes()));
    } catch (const std::exception&) {
      operation.fail(std::current_exception());
    }
  }
  operation.work->complete(operation.error);
  operation.token.reset();
}

void HybridCollectives::synchronize() {
  const std::lock_guard lock(mutex_);
  for (const auto& [index, streams] : streams_) {
    const HybridGuard guard(streams.back().device_type());
    follow(guard.getStream(streams.back().device()), streams.back());
  }
}

void HybridCollectives::abort() {
  if (calls_) {
    const std::lock_guard lock(calls_->mutex);
    calls_->is_aborted = true;
    calls_->changed.notify_all();
  }
  for (const auto& backend : {inside_.reductions, inside_.gathers}) {
    try {
      backend->abort();
    } catch (const std::exception&) {  // Not all backends can.
    }
  }
}

bool HybridCollectives::has_calls() const {
  if (!calls_) return false;
  const std::lock_guard lock(calls_->mutex);
  return calls_->count > 0;
}

void HybridCollectives::close() {
  for (CompletionThreads& thread : threads_) thread.close();
  callbacks_->close();
  if (!waits_) return;
  if (has_calls())
    ForkGuard::leak(waits_);  // Its threads may wait for ever.
  else
    waits_->close();
  waits_.reset();
}

void refuse_codec_of_matrices(const std::string& codec) {
  if (codec.find("power_sgd") == std::string::npos) return;
  refuse(
      "codec \"{}\": with inside, each rank of a host has a part of each matrix; choose an "
      "element-wise codec, such as int8",
      codec);
}

}  // namespace gradwire
