#include "gradwire/train/checkpoint/gather_model.h"

#include <map>
#include <set>
#include <string>
#include <tuple>

#include <nlohmann/json.hpp>

namespace gradwire {
namespace {

/// A piece that rank 0 needs, as its holder describes it.
struct Wanted {
  int rank = 0;
  std::size_t piece = 0;  ///< Index among the holder's.
  std::string name;
  std::vector<std::int64_t> shape;
  torch::ScalarType type = torch::kFloat32;
  std::int64_t begin = 0;
  std::int64_t count = 0;
};

std::string described(const std::vector<TensorPiece>& pieces) {
  auto list = nlohmann::json::array();
  for (const TensorPiece& piece : pieces) {
    list.push_back({piece.name, piece.shape, static_cast<int>(piece.data.scalar_type()),
                    piece.begin, piece.data.numel()});
  }
  return list.dump();
}

/// Lists each piece once, from the lowest rank that holds it; the same on all ranks.
std::vector<Wanted> wanted_from(const std::vector<std::string>& descriptions) {
  std::vector<Wanted> all;
  std::set<std::tuple<std::string, std::int64_t, std::int64_t>> taken;
  for (std::size_t rank = 0; rank < descriptions.size(); ++rank) {
    const auto list = nlohmann::json::parse(descriptions[rank]);
    for (std::size_t i = 0; i < list.size(); ++i) {
      Wanted one{.rank = static_cast<int>(rank), .piece = i};
      int type = 0;
      list[i][0].get_to(one.name);
      list[i][1].get_to(one.shape);
      list[i][2].get_to(type);
      list[i][3].get_to(one.begin);
      list[i][4].get_to(one.count);
      one.type = static_cast<torch::ScalarType>(type);
      if (one.name.starts_with("optimizer.")) continue;
      if (taken.emplace(one.name, one.begin, one.count).second) all.push_back(std::move(one));
    }
  }
  return all;
}

}  // namespace

std::vector<NamedTensor> gather_model(c10d::ProcessGroup& group,
                                      const std::vector<TensorPiece>& pieces) {
  const torch::NoGradGuard no_grad;
  const bool collects = group.getRank() == 0;
  std::map<std::string, torch::Tensor> whole;
  for (const Wanted& one : wanted_from(gather_texts(group, described(pieces)))) {
    const bool mine = one.rank == group.getRank();
    if (!mine && !collects) continue;
    std::vector<torch::Tensor> data{mine ? pieces[one.piece].data.detach().cpu()
                                         : torch::empty({one.count}, one.type)};
    if (!collects) {
      group.send(data, 0, 0)->wait();
      continue;
    }
    if (!mine) group.recv(data, one.rank, 0)->wait();
    torch::Tensor& tensor = whole[one.name];
    if (!tensor.defined()) tensor = torch::empty(one.shape, one.type);
    tensor.view({-1}).narrow(0, one.begin, one.count).copy_(data[0]);
  }
  std::vector<NamedTensor> tensors;
  for (const auto& [name, tensor] : whole) tensors.push_back({name, tensor});
  return tensors;
}

}  // namespace gradwire
