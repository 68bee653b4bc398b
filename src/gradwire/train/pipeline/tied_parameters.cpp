#include "gradwire/train/pipeline/tied_parameters.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "gradwire/base/refuse.h"
#include "gradwire/base/suggest.h"
#include "gradwire/base/tags.h"
#include "gradwire/host/named_tensor.h"
#include "gradwire/host/wait_meter.h"

namespace gradwire {
namespace {

std::string description_of(const torch::Tensor& parameter) {
  return fmt::format("[{}] {}{}", fmt::join(parameter.sizes(), ", "),
                     c10::toString(parameter.scalar_type()),
                     parameter.requires_grad() ? "" : ", frozen");
}

}  // namespace

TiedParameters::TiedParameters(const Layers& layers, Rank rank) : rank_(rank) {
  for (const auto& names : layers.ties()) ties_.push_back({.names = names});
}

std::size_t TiedParameters::add_layer(const std::string& layer, const torch::nn::Module& module,
                                      pipeline::Stage stage, Rank owner,
                                      std::size_t first_parameter) {
  std::size_t next = first_parameter;
  for (const auto& [own_name, parameter] : all_parameters(module)) {
    const std::string name = layer + "." + own_name;
    Seen seen{name, stage, c10::weak_intrusive_ptr<c10::TensorImpl>(parameter.getIntrusivePtr())};
    check_apart(seen);
    const auto same = std::ranges::find(seen_, seen.tensor, &Seen::tensor);
    const bool is_new = same == seen_.end();
    seen.place = is_new ? next : same->place;
    if (is_new && parameter.requires_grad()) ++next;
    seen_.push_back(std::move(seen));
    const auto tie = std::ranges::find_if(
        ties_, [&](const Tie& each) { return std::ranges::count(each.names, name) > 0; });
    if (tie != ties_.end()) {
      check_separate(*tie, seen_.back());
      if (parameter.requires_grad() && !tie->holders.empty()) {
        repeated_.push_back(seen_.back().place);
      }
      const int tag = kTiedParametersTag + static_cast<int>(seen_.size());
      add_holder(*tie, {.name = name, .stage = stage, .rank = owner, .tag = tag}, parameter);
    }
  }
  return next;
}

/// Each stage would step its own copy of a tensor that modules share.
void TiedParameters::check_apart(const Seen& parameter) const {
  for (const Seen& other : seen_) {
    if (other.stage == parameter.stage || other.tensor != parameter.tensor) continue;
    refuse(
        "{} and {} are one tensor, in stages {} and {}: make one of each, and tie them by "
        "Layers::tie",
        other.name, parameter.name, other.stage, parameter.stage);
  }
}

/// The tensor's gradient is that of all its uses, and would be added twice.
void TiedParameters::check_separate(const Tie& tie, const Seen& parameter) const {
  for (const Seen& other : seen_) {
    const bool is_holder = std::ranges::count(tie.names, other.name) > 0;
    if (!is_holder || other.name == parameter.name || other.tensor != parameter.tensor) continue;
    refuse("{} and {} are one tensor already: name only one of them in the tie", other.name,
           parameter.name);
  }
}

void TiedParameters::add_holder(Tie& tie, Holder holder, const torch::Tensor& parameter) const {
  const torch::NoGradGuard no_grad;
  if (tie.holders.empty()) {
    tie.trains = parameter.requires_grad();
    tie.first = parameter.detach().clone().requires_grad_(tie.trains);
  } else if (description_of(parameter) != description_of(tie.first)) {
    refuse("{} is {}, and {} is {}: tied parameters must have the same shape and type",
           tie.holders.front().name, description_of(tie.first), holder.name,
           description_of(parameter));
  }
  torch::Tensor(parameter).copy_(tie.first);
  if (holder.rank == rank_) holder.parameter = parameter;
  tie.holders.push_back(std::move(holder));
}

void TiedParameters::complete() {
  std::vector<std::string_view> known;
  for (const Seen& each : seen_) known.push_back(each.name);
  for (Tie& tie : ties_) {
    for (const std::string& name : tie.names) {
      if (std::ranges::count(known, name) > 0) continue;
      const auto nearest = nearest_name(name, known);
      refuse("the tie of {}: no layer has a parameter {}{}", fmt::join(tie.names, " and "), name,
             nearest ? fmt::format(" (did you mean {}?)", *nearest) : "");
    }
    tie.first = torch::Tensor();
  }
  seen_.clear();
}

const std::string& TiedParameters::first_name(const std::string& name) const {
  for (const Tie& tie : ties_) {
    const auto holder = std::ranges::find(tie.holders, name, &Holder::name);
    if (holder != tie.holders.end()) return tie.holders.front().name;
  }
  return name;
}

std::vector<torch::Tensor> TiedParameters::trained(pipeline::Stage stage) const {
  std::vector<torch::Tensor> parameters;
  for (const Tie& tie : ties_) {
    for (const Holder& holder : tie.holders) {
      if (tie.trains && holder.stage == stage) parameters.push_back(holder.parameter);
    }
  }
  return parameters;
}

/// Returns what `own` returns for each holder on its rank, in host memory; nothing if this rank has
/// no holder. Each rank sends its tensors to all others that have holders: of two holders, both are
/// under way at once.
std::vector<torch::Tensor> TiedParameters::exchange(c10d::ProcessGroup& group, const Tie& tie,
                                                    const Own& own) const {
  const auto mine = std::ranges::find(tie.holders, rank_, &Holder::rank);
  if (mine == tie.holders.end()) return {};
  std::vector<Rank> others;
  for (const Holder& holder : tie.holders) {
    const bool is_new = std::ranges::count(others, holder.rank) == 0;
    if (holder.rank != rank_ && is_new) others.push_back(holder.rank);
  }
  const torch::Tensor like = own(mine->stage, mine->parameter).cpu();
  std::vector<torch::Tensor> all;
  std::vector<c10::intrusive_ptr<c10d::Work>> works;
  for (const Holder& holder : tie.holders) {
    const bool is_mine = holder.rank == rank_;
    all.push_back(is_mine ? own(holder.stage, holder.parameter).cpu().contiguous()
                          : torch::empty(like.sizes(), like.options()));
    std::vector<torch::Tensor> message{all.back().detach()};
    if (!is_mine) works.push_back(group.recv(message, holder.rank, holder.tag));
    if (!is_mine) continue;
    for (const Rank other : others) works.push_back(group.send(message, other, holder.tag));
  }
  for (const auto& work : works) wait_measured(*work, "wait for tied gradients");
  return all;
}

void TiedParameters::add_gradients(c10d::ProcessGroup& group, const Own& gradient) const {
  const torch::NoGradGuard no_grad;
  for (const Tie& tie : ties_) {
    if (!tie.trains) continue;
    const std::vector<torch::Tensor> gradients = exchange(group, tie, gradient);
    if (gradients.empty()) continue;
    torch::Tensor sum = gradients.front().clone();
    for (std::size_t i = 1; i < gradients.size(); ++i) sum += gradients[i];
    for (const Holder& holder : tie.holders) {
      if (holder.rank == rank_) gradient(holder.stage, holder.parameter).copy_(sum);
    }
  }
}

void TiedParameters::check_equal(c10d::ProcessGroup& group, const Own& values) const {
  for (const Tie& tie : ties_) {
    const std::vector<torch::Tensor> all = exchange(group, tie, values);
    for (std::size_t i = 1; i < all.size(); ++i) {
      if (torch::equal(all[i], all.front())) continue;
      refuse(
          "{} and {} are tied, but the loaded values of the two differ: they are of a model "
          "without this tie",
          tie.holders.front().name, tie.holders[i].name);
    }
  }
}

}  // namespace gradwire
