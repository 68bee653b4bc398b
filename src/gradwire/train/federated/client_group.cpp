#include "gradwire/train/federated/client_group.h"

#include <utility>

#include <nlohmann/json.hpp>

#include "gradwire/base/error.h"
#include "gradwire/host/named_tensor.h"

namespace gradwire {
namespace {

std::string to_text(const std::optional<ClientGroup::Round>& round) {
  if (!round) return "";
  return nlohmann::json{
      {"round", round->round}, {"client", round->client}, {"plan", to_json(round->plan)}}
      .dump();
}

ClientGroup::Round shared_round(const std::string& text) {
  const auto json = nlohmann::json::parse(text);
  const auto plan = json.at("plan").get<std::string>();
  return {.client = json.at("client"),
          .round = json.at("round"),
          .plan = value_or_throw(federated::client_plan_from_json(plan)),
          .model = {}};
}

/// Returns this rank's part of a batch's rows.
torch::Tensor part_of(const torch::Tensor& rows, int rank, int ranks) {
  const std::int64_t begin = rows.size(0) * rank / ranks;
  return rows.narrow(0, begin, rows.size(0) * (rank + 1) / ranks - begin);
}

/// Leaves the gradients of the mean loss in the parameters.
torch::Tensor differentiated(const TrainableModule& module, const torch::Tensor& inputs,
                             const torch::Tensor& targets) {
  if (module.differentiate) return module.differentiate(inputs, targets);
  torch::Tensor loss = module.loss(module.forward(inputs), targets);
  loss.backward();
  return loss;
}

}  // namespace

ClientGroup::ClientGroup(ProcessGroup group) : group_(std::move(group)) {}

std::optional<ClientGroup::Round> ClientGroup::share(std::optional<Round> next,
                                                     std::size_t elements) {
  const std::string text = gather_texts(*group_, to_text(next)).front();
  if (text.empty()) return std::nullopt;
  Round round = next ? std::move(*next) : shared_round(text);
  round.model.resize(elements);
  const torch::Tensor values =
      torch::from_blob(round.model.data(), {static_cast<std::int64_t>(elements)});
  broadcast_tensors(*group_, {{"the federated model", values}});
  return round;
}

std::int64_t ClientGroup::share_count(std::int64_t count) {
  const double mine = leads() ? static_cast<double>(count) : 0;
  return static_cast<std::int64_t>(sum_over_ranks(*group_, {mine}).front());
}

bool ClientGroup::agree(bool goes_on) {
  return sum_over_ranks(*group_, {leads() && goes_on ? 1.0 : 0.0}).front() > 0;
}

TrainableModule ClientGroup::divided(const TrainableModule& module) {
  TrainableModule made = module;
  made.differentiate = [this, module](const torch::Tensor& inputs, const torch::Tensor& targets) {
    return differentiate(module, inputs, targets);
  };
  return made;
}

/// One all-reduce of all gradients and the loss.
torch::Tensor ClientGroup::differentiate(const TrainableModule& module, const torch::Tensor& inputs,
                                         const torch::Tensor& targets) {
  const auto parameters = trainable_parameters(*module.module);
  const torch::Tensor own = part_of(inputs, group_->getRank(), group_->getSize());
  const double share = static_cast<double>(own.size(0)) / static_cast<double>(inputs.size(0));
  for (const auto& [name, parameter] : parameters) parameter.mutable_grad().reset();
  torch::Tensor loss = torch::zeros({1});
  if (own.size(0) > 0) {
    loss = differentiated(module, own, part_of(targets, group_->getRank(), group_->getSize()));
  }
  const torch::NoGradGuard no_grad;
  std::vector<torch::Tensor> flat;
  for (const auto& [name, parameter] : parameters) {
    const torch::Tensor& gradient = parameter.grad();
    flat.push_back(gradient.defined() ? gradient.reshape({-1}) * share
                                      : torch::zeros({parameter.numel()}));
  }
  flat.push_back(loss.detach().reshape({1}) * share);
  std::vector<torch::Tensor> sum{torch::cat(flat)};
  group_->allreduce(sum)->wait();
  std::int64_t begin = 0;
  for (const auto& [name, parameter] : parameters) {
    parameter.mutable_grad() =
        sum.front().narrow(0, begin, parameter.numel()).view(parameter.sizes());
    begin += parameter.numel();
  }
  return sum.front()[begin];
}

}  // namespace gradwire
