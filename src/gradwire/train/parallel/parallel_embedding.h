#pragma once

#include <cstdint>
#include <optional>

#include <torch/torch.h>

#include "gradwire/train/parallel/box_exchange.h"
#include "gradwire/train/parallel/parallel_module.h"

namespace gradwire {

/// Options of a ParallelEmbedding.
struct ParallelEmbeddingOptions {
  ParallelEmbeddingOptions(std::int64_t rows, std::int64_t width)
      : num_embeddings_(rows), embedding_dim_(width) {}

  TORCH_ARG(std::int64_t, num_embeddings);
  TORCH_ARG(std::int64_t, embedding_dim);
  /// Sequence parallelism: returns this rank's part along this dimension of the result.
  TORCH_ARG(std::optional<std::int64_t>, sequence_dimension) = std::nullopt;
};

/// torch::nn::Embedding whose rows (the vocabulary) are divided over ranks; they need not divide.
/// Input: replicated indices of any shape; output: [..., width], replicated: the sum over ranks, of
/// which one has the row. Throws Exception(invalid_argument) if an index is outside the vocabulary.
/// Initial weights are those of torch::nn::Embedding.
class ParallelEmbeddingImpl : public ParallelModule {
 public:
  ParallelEmbeddingImpl(std::int64_t rows, std::int64_t width, const ProcessGroup& group)
      : ParallelEmbeddingImpl(ParallelEmbeddingOptions(rows, width), group) {}
  /// Takes its part of `initial`; by default of a torch::nn::Embedding that it makes.
  ParallelEmbeddingImpl(const ParallelEmbeddingOptions& options, const ProcessGroup& group,
                        torch::nn::Embedding initial = nullptr);

  torch::Tensor forward(const torch::Tensor& indices);

  ParallelEmbeddingOptions options;
  torch::Tensor weight;  ///< [own part of rows, width]
};
TORCH_MODULE(ParallelEmbedding);

/// Embedding tables of one width, divided over ranks table by table, as recommendation models have
/// them (Naumov et al., arXiv:1906.00091). Each rank has a part of the samples; indices travel to
/// the ranks of their tables and embeddings back, in one all-to-all each way, and gradients in a
/// third.
///
/// Table t is the child "t" ("3.weight"), on one rank only. Initial weights are those of
/// torch::nn::Embedding, drawn in the order of the tables.
class TableParallelEmbeddingImpl : public ParallelModule {
 public:
  /// `rows`: of each table.
  TableParallelEmbeddingImpl(const std::vector<std::int64_t>& rows, std::int64_t width,
                             const ProcessGroup& group);

  /// Input: [samples, tables] indices, divided by samples. Output: [samples, tables, width],
  /// divided alike.
  DividedTensor forward(const DividedTensor& indices);

  void to(torch::Device device, torch::Dtype type, bool non_blocking = false) override;
  void to(torch::Dtype type, bool non_blocking = false) override;
  void to(torch::Device device, bool non_blocking = false) override;

 private:
  std::int64_t tables_;
  std::int64_t width_;
  std::int64_t first_;  ///< Own tables begin here.
  std::vector<torch::nn::Embedding> own_;
  torch::TensorOptions options_ = torch::kFloat32;  ///< Tables' options, for ranks without any.
};
TORCH_MODULE(TableParallelEmbedding);

}  // namespace gradwire
