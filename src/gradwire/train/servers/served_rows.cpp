#include "gradwire/train/servers/served_rows.h"

#include "gradwire/base/refuse.h"
#include "gradwire/checkpoint/consolidate.h"

namespace gradwire {
namespace {

TensorPiece whole_piece(const std::string& name, const torch::Tensor& tensor) {
  return {.name = name, .shape = tensor.sizes().vec(), .data = tensor.view({-1})};
}

}  // namespace

void ServedRowsState::begin_loading(const std::map<std::string, Shape>& shapes) {
  others_.begin_loading(shapes);
  const auto found = shapes.find(name_ + ".rows");
  if (found == shapes.end()) {
    refuse(
        "the checkpoint has no rows of '{}' that servers had made: resume it without "
        "servers.embeddings",
        name_);
  }
  const Shape& shape = found->second;
  if (shape.size() != 2 || shape[1] != options_.width) {
    refuse("the checkpoint has rows of '{}' of another width than {}: set model.width as it was",
           name_, options_.width);
  }
  if (rank_ != 0) return;
  const bool has_sums = options_.optimizer == "adagrad";
  rows_ = {.ids = torch::zeros({shape[0]}, torch::kInt64),
           .values = torch::zeros({shape[0], options_.width}),
           .states = torch::zeros({has_sums ? shape[0] : 0, options_.width})};
}

std::vector<TensorPiece> ServedRowsState::pieces(bool make_states) {
  std::vector<TensorPiece> all = others_.pieces(make_states);
  if (!make_states) table_.synchronize();
  if (rank_ != 0) return all;
  if (!make_states) rows_ = table_.made();
  all.push_back(whole_piece(name_ + kMadeIds, rows_.ids));
  all.push_back(whole_piece(name_ + ".rows", rows_.values));
  if (options_.optimizer == "adagrad") {
    all.push_back(
        whole_piece(checkpoint::kOptimizerPrefix + ("sum." + name_ + ".rows"), rows_.states));
    all.back().is_state = true;
  }
  return all;
}

void ServedRowsState::loaded() {
  others_.loaded();
  table_.load(rows_);
  rows_ = {};
}

}  // namespace gradwire
