#include "gradwire/torch/hybrid_process_group.h"

#include <algorithm>
#include <utility>

#include <ATen/MemoryOverlap.h>
#include <fmt/format.h>

#include "gradwire/base/refuse.h"
#include "gradwire/topology/machine.h"
#include "gradwire/torch/releases.h"

namespace gradwire {
namespace {

using Base = StagedProcessGroup;
using WorkPointer = HybridProcessGroup::WorkPointer;

/// Smaller tensors take one operation of all ranks: its messages are short.
constexpr std::size_t kLeastBytes = 64 * 1024;
/// A rank's part of a segment: while it is between hosts, the next is reduced inside.
constexpr std::size_t kPartBytes = std::size_t{1} << 20;

bool is_common(const c10d::ReduceOp& op) {
  return op == c10d::ReduceOp::SUM || op == c10d::ReduceOp::AVG || op == c10d::ReduceOp::MIN ||
         op == c10d::ReduceOp::MAX || op == c10d::ReduceOp::PRODUCT;
}

bool is_common(const c10d::ReduceOp& op, at::ScalarType type) {
  const bool floats =
      type == at::kFloat || type == at::kDouble || type == at::kHalf || type == at::kBFloat16;
  const bool integers = type == at::kInt || type == at::kLong;
  return is_common(op) && (floats || (integers && op != c10d::ReduceOp::AVG));
}

/// Returns false if several elements share memory, as after expand(); the base class refuses these.
bool is_written_once(const at::Tensor& tensor) {
  return at::has_internal_overlap(tensor) != at::MemOverlap::Yes;
}

/// Never destroys a backend, whose destructor would wait for its calls.
void keep(c10::intrusive_ptr<c10d::Backend>& backend) {
  [[maybe_unused]] const auto* kept = backend.release();
}

HybridCollectives::Wait wait_for(WorkPointer work) {
  return [work = std::move(work)] { work->wait(); };
}

}  // namespace

HybridProcessGroup::~HybridProcessGroup() {
  HybridProcessGroup::shutdown();
}

void HybridProcessGroup::use_inside(const HostGrid& grid, InsideBackends inside) {
  if (grid.places() == 1) return;
  const auto all = communicator();
  const auto group_for = [&](const std::vector<Rank>& ranks) {
    return c10::make_intrusive<StagedProcessGroup>(all->subgroup(ranks));
  };
  inside_ = std::move(inside);
  if (!inside_.reductions) inside_ = {group_for(grid.inside()), group_for(grid.inside())};
  if (grid.hosts.size() > 1) between_ = group_for(grid.between());
  hybrid_ = std::make_shared<HybridCollectives>(grid, inside_, [this](const std::string& why) {
    abort_with_reason(why);
    hybrid_->abort();
  });
}

/// The same on all ranks, which agree on shapes and types, but not on strides.
bool HybridProcessGroup::is_hybrid(const at::Tensor& whole, const at::Tensor& part) const {
  if (!hybrid_ || !whole.defined() || !part.defined()) return false;
  return whole.layout() == at::kStrided && part.layout() == at::kStrided &&
         whole.nbytes() >= kLeastBytes && whole.device() == part.device() &&
         whole.scalar_type() == part.scalar_type();
}

WorkPointer HybridProcessGroup::reported(WorkPointer work) {
  report_staged(work);
  collect(work);
  return work;
}

std::chrono::milliseconds HybridProcessGroup::timeout_inside(
    std::chrono::milliseconds timeout) const {
  const auto own = options_with(timeout).timeout;
  return own ? std::chrono::ceil<std::chrono::milliseconds>(*own) : std::chrono::milliseconds{};
}

HybridCollectives::Reduction HybridProcessGroup::reduction_inside(
    const c10d::ReduceOp& op, std::chrono::milliseconds timeout) const {
  const bool mean = op == c10d::ReduceOp::AVG;
  return {.op = mean ? c10d::ReduceOp(c10d::ReduceOp::SUM) : op,
          .mean = mean,
          .timeout = timeout_inside(timeout)};
}

WorkPointer HybridProcessGroup::allreduce(TensorList& tensors, const c10d::AllreduceOptions& opts) {
  if (tensors.size() != 1 || !is_hybrid(tensors[0], tensors[0]) || !is_written_once(tensors[0]) ||
      !is_common(opts.reduceOp, tensors[0].scalar_type()))
    return Base::allreduce(tensors, opts);
  communicator();  // Throws after shutdown().
  const auto between = [this, opts](const at::Tensor& input, const at::Tensor&) {
    if (!between_) return HybridCollectives::Wait();
    TensorList part{input};
    return wait_for(between_->allreduce(part, opts));
  };
  const std::size_t segment = kPartBytes * static_cast<std::size_t>(hybrid_->grid().places());
  return reported(hybrid_->all_reduce(tensors[0], reduction_inside(opts.reduceOp, opts.timeout),
                                      between, segment, begin_operation()));
}

WorkPointer HybridProcessGroup::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                     const c10d::ReduceScatterOptions& opts) {
  if (!is_hybrid(input, output) || input.numel() != output.numel() * size_ ||
      !is_written_once(output) || !is_common(opts.reduceOp, input.scalar_type()))
    return Base::_reduce_scatter_base(output, input, opts);
  communicator();
  const auto between = [this, opts](const at::Tensor& parts, const at::Tensor& shard) {
    at::Tensor from = parts;
    at::Tensor into = shard;
    if (between_) return wait_for(between_->_reduce_scatter_base(into, from, opts));
    into.copy_(from);
    return HybridCollectives::Wait();
  };
  return reported(hybrid_->reduce_scatter(
      input, output, reduction_inside(opts.reduceOp, opts.timeout), between, begin_operation()));
}

WorkPointer HybridProcessGroup::_allgather_base(at::Tensor& output, at::Tensor& input,
                                                const c10d::AllgatherOptions& opts) {
  if (!is_hybrid(output, input) || output.numel() != input.numel() * size_ ||
      !is_written_once(output))
    return Base::_allgather_base(output, input, opts);
  communicator();
  const auto between = [this, opts](const at::Tensor& shard, const at::Tensor& parts) {
    at::Tensor from = shard;
    at::Tensor into = parts;
    if (between_) return wait_for(between_->_allgather_base(into, from, opts));
    into.copy_(from);
    return HybridCollectives::Wait();
  };
  return reported(
      hybrid_->all_gather(input, output, between, timeout_inside(opts.timeout), begin_operation()));
}

WorkPointer HybridProcessGroup::barrier(const c10d::BarrierOptions& opts) {
  WorkPointer work = Base::barrier(opts);  // It has waited for the collectives in two levels.
  if (hybrid_) hybrid_->synchronize();
  return work;
}

void HybridProcessGroup::setTimeout(std::chrono::milliseconds timeout) {
  Base::setTimeout(timeout);
  if (between_) between_->setTimeout(timeout);
}

void HybridProcessGroup::abort() {
  Base::abort();
  if (hybrid_) hybrid_->abort();
}

void HybridProcessGroup::leave_at_once(const std::string& failure) {
  Base::leave_at_once(failure);
  if (hybrid_) hybrid_->abort();
}

void HybridProcessGroup::shutdown() {
  if (hybrid_) {
    hybrid_->close();
    for (auto* backend : {&inside_.reductions, &inside_.gathers}) {
      if (hybrid_->has_calls())
        keep(*backend);
      else if (*backend)
        (*backend)->shutdown();
    }
  }
  if (between_) between_->shutdown();
  Base::shutdown();
}

namespace {

std::shared_ptr<Communicator> own_communicator(c10d::ProcessGroup& group) {
  if (auto communicator = communicator_of(group)) return communicator;
  throw Exception(ErrorKind::unsupported,
                  "inside needs gradwire's own group between hosts: make it with gradwire::init()");
}

}  // namespace

HostGrid host_grid_of(c10d::ProcessGroup& group) {
  return host_grid(*own_communicator(group), topology::machine_identity());
}

c10::intrusive_ptr<c10d::ProcessGroup> hybrid_group(c10d::ProcessGroup& group, const HostGrid& grid,
                                                    const InsideBackends& inside) {
  auto backend = c10::make_intrusive<HybridProcessGroup>(own_communicator(group));
  backend->use_inside(grid, inside);
  return process_group_of(backend);
}

c10::intrusive_ptr<HybridProcessGroup> hybrid_backend_of(c10d::ProcessGroup& group) {
  if (!has_backend(group, c10::DeviceType::CPU)) return nullptr;
  const auto backend = group.getBackend(c10::DeviceType::CPU);
  auto* const hybrid = dynamic_cast<HybridProcessGroup*>(backend.get());
  if (hybrid == nullptr || !hybrid->hybrid()) return nullptr;
  return c10::intrusive_ptr<HybridProcessGroup>::reclaim_copy(hybrid);
}

void refuse_inside(c10d::ProcessGroup& group, std::string_view what) {
  if (!hybrid_backend_of(group)) return;
  throw Exception(ErrorKind::unsupported,
                  fmt::format("a group with inside does not have {}: leave inside out", what));
}

}  // namespace gradwire
