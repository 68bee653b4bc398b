#include "gradwire/train/servers/served_local_state.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include "gradwire/checkpoint/consolidate.h"

namespace gradwire {
namespace {

/// The outer module has "0/weight" for the parameter "0.weight".
std::string own_name(const TensorPiece& outer) {
  constexpr const char* kPrefix = checkpoint::kOptimizerPrefix;
  std::string name = outer.name;
  if (outer.is_state) name = kPrefix + ("outer_" + name.substr(std::strlen(kPrefix)));
  std::ranges::replace(name, '/', '.');
  return name;
}

}  // namespace

void ServedLocalState::begin_loading(const std::map<std::string, Shape>& shapes) {
  own_.begin_loading(shapes);
}

std::vector<TensorPiece> ServedLocalState::pieces(bool make_states) {
  std::vector<TensorPiece> all = outer().pieces(make_states);
  std::set<std::string> names;
  for (TensorPiece& piece : all) names.insert(piece.name = own_name(piece));
  for (TensorPiece& piece : own_.pieces(make_states)) {
    if (names.contains(piece.name)) continue;  // The outer parameter is in its place.
    if (piece.is_state) piece.common = false;
    all.push_back(std::move(piece));
  }
  return all;
}

void ServedLocalState::loaded() {
  outer().loaded();
  own_.loaded();
  local_.follow();
}

void ServedLocalState::resume_at(std::int64_t step, const std::string& progress) {
  outer().resume_at(step, progress);
  own_.resume_at(step, "{}");
}

}  // namespace gradwire
