#include "gradwire/train/parallel/parallel_embedding.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "gradwire/base/refuse.h"
#include "gradwire/train/parallel/sequence_parallel.h"

namespace gradwire {

ParallelEmbeddingImpl::ParallelEmbeddingImpl(const ParallelEmbeddingOptions& options_,
                                             const ProcessGroup& group,
                                             torch::nn::Embedding initial)
    : ParallelModule(group), options(options_) {
  const auto rows = options.num_embeddings();
  const auto width = options.embedding_dim();
  if (!initial) initial = torch::nn::Embedding(rows, width);
  weight = register_part("weight", initial->weight, divided({rows, width}, 0, ranks()));
}

namespace {

void check_indices(const torch::Tensor& indices, std::int64_t rows) {
  if (indices.numel() == 0) return;
  const auto [min, max] = torch::aminmax(indices);
  if (min.item<std::int64_t>() >= 0 && max.item<std::int64_t>() < rows) return;
  refuse("an embedding of {} rows is asked for the rows {} to {}", rows, min.item<std::int64_t>(),
         max.item<std::int64_t>());
}

}  // namespace

torch::Tensor ParallelEmbeddingImpl::forward(const torch::Tensor& indices) {
  if (ranks() == 1) return torch::embedding(weight, indices);
  check_indices(indices, options.num_embeddings());
  const auto first = part_begin(options.num_embeddings(), ranks(), rank());
  const auto local = indices - first;
  const auto elsewhere = (local < 0).logical_or(local >= weight.size(0));
  torch::Tensor found;
  if (weight.size(0) > 0) {
    found = torch::embedding(weight, local.masked_fill(elsewhere, 0))
                .masked_fill(elsewhere.unsqueeze(-1), 0);
  } else {  // More ranks than rows. The sum keeps the graph, so that this rank takes part backward.
    auto sizes = indices.sizes().vec();
    sizes.push_back(options.embedding_dim());
    found = weight.sum().expand(sizes);
  }
  return sum_for_sequence("ParallelEmbedding", found, options.sequence_dimension(), group());
}

TableParallelEmbeddingImpl::TableParallelEmbeddingImpl(const std::vector<std::int64_t>& rows,
                                                       std::int64_t width,
                                                       const ProcessGroup& group)
    : ParallelModule(group),
      tables_(static_cast<std::int64_t>(rows.size())),
      width_(width),
      first_(part_begin(tables_, ranks(), rank())) {
  const auto end = part_begin(tables_, ranks(), rank() + 1);
  for (std::int64_t t = 0; t < tables_; ++t) {
    const torch::nn::Embedding table(rows[static_cast<std::size_t>(t)], width);
    if (t < first_ || t >= end) continue;
    const auto name = fmt::format("{}", t);
    own_.push_back(register_module(name, table));
    record_sole_owner(name + ".weight", table->weight);
  }
}

void TableParallelEmbeddingImpl::to(torch::Device device, torch::Dtype type, bool non_blocking) {
  options_ = options_.device(device).dtype(type);
  ParallelModule::to(device, type, non_blocking);
}

void TableParallelEmbeddingImpl::to(torch::Dtype type, bool non_blocking) {
  options_ = options_.dtype(type);
  ParallelModule::to(type, non_blocking);
}

void TableParallelEmbeddingImpl::to(torch::Device device, bool non_blocking) {
  options_ = options_.device(device);
  ParallelModule::to(device, non_blocking);
}

DividedTensor TableParallelEmbeddingImpl::forward(const DividedTensor& indices) {
  const Shape& shape = indices.division.shape;
  if (shape.size() != 2 || shape[1] != tables_) {
    refuse("{} embedding tables require indices of shape [samples, {}]; found [{}]", tables_,
           tables_, fmt::join(shape, ", "));
  }
  const auto of_tables = redivide(indices, divided(shape, 1, ranks()), group());
  std::vector<torch::Tensor> columns;
  for (std::size_t i = 0; i < own_.size(); ++i) {
    const auto column = of_tables.own.select(1, static_cast<std::int64_t>(i)).contiguous();
    columns.push_back(own_[i]->forward(column));
  }
  // A rank without tables takes part in backward too.
  const auto found = columns.empty()
                         ? torch::empty({shape[0], 0, width_}, options_).requires_grad_()
                         : torch::stack(columns, 1);
  Division by_sample{{shape[0], shape[1], width_}, {}};
  for (const Box& box : indices.division.boxes) {
    by_sample.boxes.push_back({{box.begin[0], 0, 0}, {box.end[0], tables_, width_}});
  }
  return redivide({found, divided(by_sample.shape, 1, ranks())}, by_sample, group());
}

}  // namespace gradwire
