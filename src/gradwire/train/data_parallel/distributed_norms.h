#pragma once

#include <cstddef>
#include <functional>
#include <unordered_map>
#include <utility>
#include <vector>

#include <torch/torch.h>

namespace gradwire {

/// Norms of tensors that are sharded over ranks. Layer-wise optimizers need them when each rank
/// steps only its shards. Squares are summed in double precision, first locally and then over
/// ranks.
class DistributedNorms {
 public:
  using Sum = std::function<std::vector<double>(std::vector<double>)>;

  /// `tensors`: total number of tensors, the same on every rank. `sum`: sums values over ranks;
  /// collective.
  DistributedNorms(std::size_t tensors, Sum sum) : sum_(std::move(sum)), squares_(2 * tensors) {}

  /// Registers `piece` as a shard of tensor number `tensor`. `matrix`: the tensor has more than one
  /// dimension.
  void place(const torch::Tensor& piece, std::size_t tensor, bool matrix) {
    places_[piece.unsafeGetTensorImpl()] = {tensor, matrix};
  }
  bool matrix(const torch::Tensor& piece) const { return find(piece).matrix; }

  /// Resets all norms. Each tensor has two, 0 and 1; add() takes values for the elements of
  /// `piece`.
  void clear() { squares_.assign(squares_.size(), 0); }
  void add(const torch::Tensor& piece, std::size_t which, const torch::Tensor& values) {
    const auto norm = torch::linalg_vector_norm(values.to(torch::kFloat64)).item<double>();
    squares_[2 * find(piece).tensor + which] += norm * norm;
  }

  /// Sums over ranks. Call on all ranks after all add() calls.
  void sum() { squares_ = sum_(std::move(squares_)); }

  /// Norm of the whole tensor, as a scalar.
  torch::Tensor norm(const torch::Tensor& piece, std::size_t which) const {
    return torch::tensor(squares_[2 * find(piece).tensor + which], torch::kFloat64).sqrt();
  }

 private:
  struct Place {
    std::size_t tensor = 0;
    bool matrix = false;
  };

  const Place& find(const torch::Tensor& piece) const {
    return places_.at(piece.unsafeGetTensorImpl());
  }

  Sum sum_;
  std::vector<double> squares_;
  std::unordered_map<const void*, Place> places_;
};

}  // namespace gradwire
