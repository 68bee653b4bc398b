#include "gradwire/train/servers/replayed_module.h"

#include <cstring>
#include <utility>

#include "gradwire/base/error.h"
#include "gradwire/exchange/exchange.h"
#include "gradwire/host/training_host.h"
#include "gradwire/servers/messages.h"
#include "gradwire/torch/init.h"
#include "gradwire/torch/tensor_span.h"
#include "gradwire/train/servers/served_units.h"
#include "gradwire/train/servers/torch_shards.h"
#include "gradwire/train/zero/shards.h"
#include "gradwire/train/zero/unit_plan.h"

namespace gradwire {

/// The exchange of a process alone: keeps the gradients, and leaves the parameters as they are.
class ReplayedModule::KeptGradients final : public exchange::Exchange {
 public:
  explicit KeptGradients(std::vector<exchange::UnitShape> shapes) : shapes_(std::move(shapes)) {
    for (const exchange::UnitShape& shape : shapes_) {
      memory_.emplace_back(shape.count * size_of(shape.type));
    }
  }

  LentSpan gradient(std::size_t unit) {
    return {memory_[unit].data(), shapes_[unit].count, shapes_[unit].type, nullptr};
  }

  Work all_reduce(std::size_t, LentSpan, int) override {
    throw Exception(ErrorKind::unsupported, "a replayed worker gets no mean of gradients");
  }
  Work reduce_scatter(std::size_t unit, LentSpan data, LentSpan /*shard*/, int) override {
    exchange::check_unit(shapes_, unit, data);
    std::memcpy(memory_[unit].data(), data.data, memory_[unit].size());
    return completed_work();
  }
  Work all_gather(std::size_t, LentConstSpan, LentSpan, int) override { return completed_work(); }
  exchange::ExchangeTraits traits() const override { return {}; }
  std::string describe() const override { return "gradients stay in this process"; }

 private:
  std::vector<exchange::UnitShape> shapes_;
  std::vector<std::vector<std::byte>> memory_;  ///< By unit.
};

ReplayedModule::ReplayedModule(torch::nn::Module& module, const ReplayedOptions& options,
                               bool sequential)
    : stepped_(std::make_unique<SteppedByServers>()) {
  initialize_vector_math();
  const auto parameters = trainable_parameters(module);
  const UnitPlan plan = plan_whole_units(parameters, step::limits_capped_at(options.bucket_cap_mb));
  for (int server = 0; server < options.servers; ++server) {
    servers_.push_back(
        std::make_unique<TorchShards>(parameters, plan,
                                      TorchShardsOptions{.server = server,
                                                         .placement = {.servers = options.servers},
                                                         .optimizer = options.optimizer}));
  }
  const ProcessGroup alone = group_of_one();
  shards_ = make_served_units(alone, "replay", options.servers, plan, parameters);
  const auto make_exchange = [this](std::vector<exchange::UnitShape> shapes) {
    auto made = std::make_unique<KeptGradients>(std::move(shapes));
    gradients_ = made.get();
    return made;
  };
  own_host_ = std::make_unique<TrainingHost>(
      alone, *shards_, stepped_.get(), all_buffers(module),
      TrainingHostOptions{.who = "replay",
                          // The policy of ServedModule.
                          .policy = {.stage = 1, .ranks = 2, .overlap = options.overlap},
                          .exchange = {},
                          .make_exchange = make_exchange,
                          .forward_awaits = sequential,
                          .broadcast_buffers = false});
  set_host(*own_host_);
}

ReplayedModule::~ReplayedModule() = default;

void ReplayedModule::step_in_backward() {
  host().finish_step();
  host().step_in_backward();
}

LentSpan ReplayedModule::values(std::size_t unit) {
  return lend(shards_->units()[unit].flat(), host().errors().name("parameters"));
}

LentSpan ReplayedModule::gradient(std::size_t unit) {
  return gradients_->gradient(unit);
}

std::vector<servers::ServedShards*> ReplayedModule::servers() {
  std::vector<servers::ServedShards*> all;
  for (const auto& server : servers_) all.push_back(server.get());
  return all;
}

void ReplayedModule::take_values() {
  host().finish();
  const auto count = static_cast<int>(servers_.size());
  for (std::size_t unit = 0; unit < shards_->units().size(); ++unit) {
    const LentSpan whole = values(unit);
    for (int server = 0; server < count; ++server) {
      const LentSpan part = servers_[static_cast<std::size_t>(server)]->values(unit);
      std::memcpy(servers::part_of(whole, server, count).data, part.data,
                  part.count * size_of(part.type));
    }
  }
}

}  // namespace gradwire
