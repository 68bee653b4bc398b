#pragma once

#include <cstddef>
#include <functional>
#include <unordered_map>
#include <utility>
#include <vector>

#include <torch/torch.h>

namespace gradwire {

/// Norms of tensors that are spread over ranks, each of which has some elements of some of them:
/// what Lars and Lamb need of whole tensors where a rank steps its pieces. The squares are added up
/// in double precision, first here and then over ranks.
class SpreadNorms {
 public:
  using Sum = std::function<std::vector<double>(std::vector<double>)>;

  /// Of `tensors` tensors altogether, the same on every rank. `sum`: over ranks; collective.
  SpreadNorms(std::size_t tensors, Sum sum) : sum_(std::move(sum)), squares_(2 * tensors) {}

  /// `piece` is of that tensor, of which it says whether it has more than one dimension.
  void place(const torch::Tensor& piece, std::size_t tensor, bool matrix) {
    places_[piece.unsafeGetTensorImpl()] = {tensor, matrix};
  }
  bool matrix(const torch::Tensor& piece) const { return find(piece).matrix; }

  /// Measures anew. Each tensor has two norms, 0 and 1: `values` are of `piece`'s elements.
  void clear() { squares_.assign(squares_.size(), 0); }
  void add(const torch::Tensor& piece, std::size_t which, const torch::Tensor& values) {
    const auto norm = torch::linalg_vector_norm(values.to(torch::kFloat64)).item<double>();
    squares_[2 * find(piece).tensor + which] += norm * norm;
  }

  /// To be called on all ranks once everything is added.
  void sum() { squares_ = sum_(std::move(squares_)); }

  /// Of the whole tensor, as a scalar.
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
