#include "gradwire/torch/sparse_all_reduce.h"

#include <fmt/format.h>

#include "gradwire/base/refuse.h"
#include "gradwire/torch/tensor_lists.h"
#include "gradwire/torch/thread_work.h"

namespace gradwire {
namespace {

const char* const kName = "all_reduce";

/// The values that ranks must agree on, then the number of entries, which may differ.
at::Tensor description_of(const at::Tensor& tensor) {
  std::vector<std::int64_t> numbers{tensor.sparse_dim(), tensor.dense_dim()};
  for (const std::int64_t size : tensor.sizes()) numbers.push_back(size);
  numbers.push_back(tensor._nnz());
  return at::tensor(numbers, at::kLong);
}

/// Gathers along dimension `along`, whose size on rank r is counts[r].
at::Tensor gathered(ProcessGroupGradwire& group, const at::Tensor& mine, std::int64_t along,
                    const at::Tensor& counts, const c10d::AllgatherOptions& opts) {
  std::vector<TensorList> lists(1);
  for (std::int64_t r = 0; r < counts.numel(); ++r) {
    auto sizes = mine.sizes().vec();
    sizes[static_cast<std::size_t>(along)] = counts[r].item<std::int64_t>();
    lists[0].push_back(at::empty(sizes, mine.options()));
  }
  TensorList inputs{mine.contiguous()};
  group.allgather(lists, inputs, opts)->wait();
  return at::cat(lists[0], along);
}

void check_shapes(const at::Tensor& descriptions, int rank) {
  const auto shapes = descriptions.slice(1, 0, -1);
  for (std::int64_t r = 0; r < shapes.size(0); ++r) {
    if (shapes[r].equal(shapes[rank])) continue;
    refuse({kName, "tensors[0]", rank},
           fmt::format("has a different sparse shape than on rank {}", r));
  }
}

at::Tensor reduced(ProcessGroupGradwire& group, const at::Tensor& tensor,
                   const c10d::AllreduceOptions& opts) {
  const at::Tensor mine = tensor.coalesce();
  c10d::AllgatherOptions gather;
  gather.timeout = opts.timeout;
  auto description = description_of(mine);
  auto descriptions = at::empty({group.getSize(), description.numel()}, at::kLong);
  group._allgather_base(descriptions, description, gather)->wait();
  check_shapes(descriptions, group.getRank());
  const auto counts = descriptions.select(1, -1);
  const auto indices = gathered(group, mine.indices(), 1, counts, gather);
  const auto values = gathered(group, mine.values(), 0, counts, gather);
  auto sum =
      at::_sparse_coo_tensor_unsafe(indices, values, mine.sizes(), mine.options()).coalesce();
  if (opts.reduceOp == c10d::ReduceOp::AVG) sum.div_(group.getSize());
  return sum;
}

}  // namespace

SparseAllReduce::SparseAllReduce(c10::intrusive_ptr<ProcessGroupGradwire> group)
    : group_(std::move(group)) {}

c10::intrusive_ptr<c10d::Work> SparseAllReduce::run(const at::Tensor& tensor, std::uint64_t number,
                                                    const c10d::AllreduceOptions& opts,
                                                    OperationsInFlight::Token in_flight_token) {
  const bool average = opts.reduceOp == c10d::ReduceOp::AVG;
  if (!average && opts.reduceOp != c10d::ReduceOp::SUM) {
    throw Exception(ErrorKind::unsupported,
                    fmt::format("rank {}: {}, argument 'tensors[0]': sparse tensors support only "
                                "SUM and AVG; for other reductions convert them with to_dense()",
                                group_->getRank(), kName));
  }
  auto work = c10::make_intrusive<ThreadWork>(group_->getRank(), c10d::OpType::_ALLREDUCE_SPARSE,
                                              number, TensorList{tensor}, callbacks_);
  thread_.run([work, tensor, opts, group = group_, in_flight_token = std::move(in_flight_token)] {
    const at::NoGradGuard no_grad;
    std::exception_ptr error;
    try {
      tensor.copy_(reduced(*group, tensor, opts));
    } catch (const Exception&) {  // Rejected or failed on every rank alike.
      error = std::current_exception();
    } catch (const std::exception& failed) {
      error = std::current_exception();
      group->abort_with_reason(fmt::format("a sparse all_reduce failed on rank {}: {}",
                                           group->getRank(), failed.what()));
    }
    work->complete(error);
  });
  return work;
}

}  // namespace gradwire
