#include "gradwire/train/servers/served_module.h"

#include <cstdlib>
#include <exception>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "gradwire/base/refuse.h"
#include "gradwire/bootstrap/failure_report.h"
#include "gradwire/exchange/traced_exchange.h"
#include "gradwire/host/restore_point.h"
#include "gradwire/host/servers/connect_servers.h"
#include "gradwire/host/servers/local_server.h"
#include "gradwire/host/training_host.h"
#include "gradwire/servers/grouped_exchange.h"
#include "gradwire/servers/served_exchange.h"
#include "gradwire/servers/sum_over_servers.h"
#include "gradwire/torch/init.h"
#include "gradwire/torch/tensor_span.h"
#include "gradwire/train/servers/served_state.h"
#include "gradwire/train/servers/served_units.h"
#include "gradwire/train/zero/shards.h"
#include "gradwire/train/zero/unit_plan.h"

namespace gradwire {
namespace {

servers::CodecSettings codecs_of(const ServedOptions& options) {
  return {.push = options.codec,
          .pull = options.pull_codec,
          .warmup_steps = options.codec_warmup_steps,
          .seed = options.codec_seed};
}

void check_options(const ServedOptions& options) {
  if (!options.process_group) {
    refuse("Served: no process_group; pass {{.process_group = gradwire::init()}}");
  }
  if (!options.optimizer) {
    refuse(
        "Served: no optimizer; pass {{.optimizer = ...}}, a function that makes one for a list of "
        "parameters, which steps on the servers");
  }
  if (!(options.bucket_cap_mb > 0)) {
    refuse("Served: bucket_cap_mb is {}; it must be positive", options.bucket_cap_mb);
  }
  if (options.servers.keeps_order && (options.servers.groups > 0 || codecs_of(options).any())) {
    refuse("Served: keeps_order excludes groups and codecs, which are not replayed");
  }
  if (options.servers.keeps_order && options.servers.mirror_every > 0) {
    refuse("Served: keeps_order excludes mirror_every, as a mirror does not know the order");
  }
  if (options.servers.keeps_order && options.servers.weighs_samples) {
    refuse("Served: keeps_order excludes weighs_samples, which is not replayed");
  }
  if (options.servers.weighs_samples && options.servers.groups > 0) {
    refuse("Served: weighs_samples excludes groups, whose members have weights of their own");
  }
  if (!(options.max_grad_norm >= 0)) {
    refuse("Served: max_grad_norm is {}; it must be positive, or 0", options.max_grad_norm);
  }
}

int members_of(const ServersOptions& options, int workers) {
  servers::ServerPolicy policy;
  servers::set_mode(policy, options.mode);
  const servers::Groups groups{options.groups, options.groups_beyond_8};
  return servers::workers_per_group(groups, workers, policy.mode);
}

/// `need`: what needs which norms.
void require_whole_steps(const char* need, const servers::ServerPolicy& policy) {
  if (policy.has_common_steps() && policy.asynchronous.empty()) return;
  const std::string reason =
      policy.has_common_steps() ? "each gradient of the asynchronous units is a step alone"
      : policy.mode == servers::Mode::sync
          ? fmt::format("with use {} each server steps with the gradients that reach it first",
                        policy.use)
          : fmt::format("in mode {} each gradient is a step on each server alone",
                        servers::mode_text(policy));
  refuse("Served: {} over all servers, and {}; use mode sync with use 1, or servers without it",
         need, reason);
}

/// By unit, whether it has the named parameters, which are in no unit with others. Empty if none
/// has.
std::vector<bool> asynchronous_units(const UnitPlan& plan,
                                     const std::vector<NamedTensor>& parameters,
                                     const std::set<std::string>& named) {
  if (named.empty()) return {};
  std::vector<bool> asynchronous;
  for (const UnitPlan::Unit& unit : plan.units) {
    asynchronous.push_back(named.contains(parameters[unit.members.front()].name));
  }
  return asynchronous;
}

servers::ServerPolicy policy_of(const ServedOptions& options, int workers,
                                std::vector<bool> asynchronous) {
  servers::ServerPolicy policy{.workers = workers,
                               .use = options.servers.use,
                               .grace = duration_of(options.servers.grace),
                               .asynchronous = std::move(asynchronous)};
  servers::set_mode(policy, options.servers.mode);
  policy.rate = servers::parse_rate_rule(options.servers.rate);
  servers::check(policy);
  if (options.max_grad_norm > 0) require_whole_steps("max_grad_norm needs the norm", policy);
  return policy;
}

/// The units as workers and servers have them: `parts` divides their elements.
std::vector<exchange::UnitShape> shapes_of(const std::vector<NamedTensor>& parameters,
                                           const UnitPlan& plan, std::size_t parts,
                                           std::size_t codec_min_elements) {
  std::vector<exchange::UnitShape> shapes;
  for (const UnitPlan::Unit& unit : plan.units) {
    exchange::UnitShape shape;
    for (const std::size_t member : unit.members) {
      const auto& [name, tensor] = parameters[member];
      shape.type = data_type_of(tensor.scalar_type()).value_or(DataType::float32);
      shape.tensors.push_back({name, shape.count, static_cast<std::size_t>(tensor.numel())});
      shape.count += static_cast<std::size_t>(tensor.numel());
    }
    shape.skip_compression = shape.count < codec_min_elements;
    shape.count = (shape.count + parts - 1) / parts * parts;
    shapes.push_back(std::move(shape));
  }
  return shapes;
}

std::shared_ptr<const servers::UnitCodecs> codecs_on_server(const servers::ServedLayout& layout) {
  if (!layout.codecs.any()) return nullptr;
  return std::make_shared<servers::UnitCodecs>(layout.unit_codecs());
}

std::vector<NamedTensor> frozen_parameters(const torch::nn::Module& module) {
  std::vector<NamedTensor> frozen = all_parameters(module);
  std::erase_if(frozen, [](const NamedTensor& each) { return each.tensor.requires_grad(); });
  return frozen;
}

void require_cpu(const std::vector<NamedTensor>& parameters) {
  for (const auto& [name, tensor] : parameters) {
    if (tensor.is_cpu()) continue;
    refuse("Served: parameter '{}' is on {}; servers support parameters on the CPU", name,
           tensor.device().str());
  }
}

/// A server rank has nothing else to do: its script ends here.
[[noreturn]] void serve_and_exit(LocalServer& server, StandbyServer* standby,
                                 const ProcessGroup& group,
                                 const std::shared_ptr<Communicator>& pairs) {
  try {
    server.run();
    if (standby != nullptr) standby->join();
  } catch (const std::exception& e) {
    pairs->leave_at_once(e.what());  // Otherwise workers and the standby would wait for each other.
    throw;
  }
  leave_as_server(*pairs, group);
  std::exit(0);
}

}  // namespace

ServedModule::ServedModule(torch::nn::Module& module, const ServedOptions& options,
                           bool sequential) {
  check_options(options);
  initialize_vector_math();
  const auto parameters = trainable_parameters(module);
  require_cpu(parameters);
  const auto named = parameters_of_units(parameters, options.servers.units);
  const UnitPlan plan =
      plan_whole_units(parameters, step::limits_capped_at(options.bucket_cap_mb), {.apart = named});
  ServersPlace place = connect_servers(options.process_group, options.servers.count);
  pairs_ = place.pairs;
  place.placement.members = members_of(options.servers, place.placement.workers);
  const servers::ServedLayout layout{
      place.placement,
      policy_of(options, place.placement.groups(), asynchronous_units(plan, parameters, named)),
      shapes_of(parameters, plan, static_cast<std::size_t>(place.placement.parts_of_unit()),
                options.codec_min_elements),
      codecs_of(options),
      options.servers.mirror_every,
      options.servers.weighs_samples};
  servers::check(layout);
  if (place.server >= 0) {
    make_server(options, layout, plan, parameters, place.server);
    if (!place.works()) serve_and_exit(*server_, standby_.get(), options.process_group, pairs_);
    server_->start();
  }
  broadcast_model("Served", options.process_group, all_parameters(module), all_buffers(module));
  shards_ = make_served_units(options.process_group, "Served", layout.placement.parts_of_unit(),
                              plan, parameters);
  if (layout.placement.members > 1) {
    members_ = connect_members(options.process_group, layout.placement.members);
  }
  make_host(options, layout, all_buffers(module), sequential);
  auto state = std::make_unique<ServedState>(
      ServedTensors{parameters, frozen_parameters(module), plan, options.optimizer,
                    layout.placement, layout.policy.has_common_steps()},
      *shards_, *own_host_, *exchange_);
  state->load_values();
  state_ = std::move(state);
  if (options.samples > 0) deal(options.samples, options.epochs, {});
  has_optional_workers_ = note_optional_workers(layout.placement, layout.policy,
                                                options.process_group, layout.mirror_every > 0);
}

void ServedModule::make_server(const ServedOptions& options, const servers::ServedLayout& layout,
                               const UnitPlan& plan, const std::vector<NamedTensor>& parameters,
                               int number) {
  const servers::Placement& placement = layout.placement;
  const SumOverRanks sum = [pairs = pairs_, placement, number](std::vector<double> values) {
    return servers::sum_over_servers(*pairs, placement, number, std::move(values));
  };
  const auto shards_of = [&](int server) {
    return std::make_unique<TorchShards>(parameters, plan,
                                         TorchShardsOptions{.server = server,
                                                            .placement = placement,
                                                            .optimizer = options.optimizer,
                                                            .max_grad_norm = options.max_grad_norm,
                                                            .sum = sum});
  };
  auto shards = shards_of(number);
  servers::ServerOptions serving{.placement = placement,
                                 .policy = layout.policy,
                                 .fingerprint = servers::fingerprint_of(layout),
                                 .codecs = codecs_on_server(layout),
                                 .weighs_samples = layout.weighs_samples,
                                 .keeps_order = options.servers.keeps_order};
  if (shards->needs_all_gradients()) {
    require_whole_steps("Lars, Lamb and RangerLars need norms", serving.policy);
    serving.policy.whole_steps = true;
  }
  std::optional<servers::MirroredShards::Options> mirror;
  if (layout.mirror_every > 0) {
    mirror = {.pairs = pairs_,
              .mirror = placement.rank_of_server(placement.mirror_of(number)),
              .every = layout.mirror_every};
    const int other = placement.mirrored_by(number);
    standby_ = std::make_unique<StandbyServer>(
        pairs_, shards_of(other), placement.rank_of_server(other), serving, options.clock);
  }
  server_ = std::make_unique<LocalServer>(pairs_, std::move(shards), serving, options.clock,
                                          std::move(mirror));
}

std::unique_ptr<exchange::Exchange> ServedModule::make_exchange(
    const ServedOptions& options, const servers::ServedLayout& layout) {
  auto served =
      std::make_unique<servers::ServedExchange>(pairs_, layout, options.servers.pull_every);
  exchange_ = served.get();
  exchange_->set_asynchronous_factor(options.servers.units_rate);
  if (!members_) return served;
  auto grouped = std::make_unique<servers::GroupedExchange>(
      std::move(served), *exchange_, members_, options.process_group->getRank() - members_->rank(),
      layout.units);
  grouped_ = grouped.get();
  return grouped;
}

void ServedModule::make_host(const ServedOptions& options, const servers::ServedLayout& layout,
                             std::vector<NamedTensor> buffers, bool sequential) {
  const auto make_exchange = [&](const std::vector<exchange::UnitShape>&) {
    return exchange::traced_exchange(this->make_exchange(options, layout), options.trace);
  };
  pushed_ = std::make_unique<SteppedByServers>();
  own_host_ = std::make_unique<TrainingHost>(
      options.process_group, *shards_, pushed_.get(), std::move(buffers),
      TrainingHostOptions{
          .who = "Served",
          // ZeRO's stage 1, with shards on other ranks.
          .policy = {.stage = 1, .ranks = 2, .overlap = options.overlap},
          .make_exchange = make_exchange,
          .forward_awaits = options.forward_awaits || sequential,
          .broadcast_buffers = options.broadcast_buffers && layout.policy.has_common_steps(),
          .clock = options.clock,
          .trace = options.trace});
  set_host(*own_host_);
}

ServedModule::~ServedModule() {
  try {
    if (std::uncaught_exceptions() == 0) leave();
  } catch (const std::exception& e) {
    // Its next user gets the reason. A server beside this worker would wait for it.
    pairs_->abort(e.what());
  }
}

void ServedModule::set_rate(double rate) {
  exchange_->set_rate(rate);
}

void ServedModule::forget_batches() {
  taken_ = 0;
  taken_samples_ = 0;
  own_samples_ = group_samples_ = 0;
}

void ServedModule::step() {
  forget_batches();
  host().begin_step();
}

void ServedModule::step_in_backward() {
  forget_batches();
  host().finish_step();
  host().step_in_backward();
}

void ServedModule::leave() {
  if (std::exchange(left_, true)) return;
  own_host_->finish();
  exchange_->leave();
  if (server_) server_->worker_left();
  if (has_optional_workers_) bootstrap::note_optional({});
}

void ServedModule::deal(std::int64_t samples, std::int64_t epochs,
                        const servers::DealProgress& progress) {
  samples_ = samples * epochs;
  if (rank() == 0) exchange_->deal(samples, epochs, progress);
  sum_over_ranks(*group(), {1});
}

servers::Deal ServedModule::take_batch_of_group(std::int64_t count, std::int64_t stop) {
  // The first member may evaluate, or save a checkpoint, for as long as it likes.
  const OperationOptions patient{.timeout = Duration::max()};
  servers::Deal batch;
  try {
    members_->all_reduce({&stop, 1, DataType::int64, nullptr}, ReduceOp::max, patient).wait();
    if (members_->rank() == 0) batch = exchange_->take(count * members_->size(), stop);
    members_->broadcast(servers::lend_message(batch), 0, patient).wait();
  } catch (const Exception& e) {
    const int members = members_->size();
    throw Exception(e.kind(), servers::group_text(rank() - members_->rank(), members) + e.what());
  }
  return batch;
}

/// The members of a group have its batch from the first one, and each computes a part of it. Its
/// gradient has the weight of its samples among those of the group, since the last step.
servers::Deal ServedModule::take_share(std::int64_t count, std::int64_t stop) {
  if (!members_) return exchange_->take(count, stop);
  const servers::Deal batch = take_batch_of_group(count, stop);
  const servers::DealShare share = servers::share_of(batch, members_->rank(), members_->size());
  const auto samples = static_cast<double>(batch.count);
  group_samples_ += samples;
  own_samples_ += share.weight * samples;
  if (group_samples_ > 0) grouped_->set_weight(own_samples_ / group_samples_);
  return share.batch;
}

servers::Deal ServedModule::take(std::int64_t count, std::int64_t stop) {
  for (bool synchronized = false;; synchronized = true) {
    const servers::Deal batch = take_share(count, stop);
    // The gradients of batches from a server that is lost belong to none of this one's.
    if (std::exchange(dealer_, exchange_->dealer()) != exchange_->dealer()) taken_ = 0;
    if (batch.count > 0) {
      ++taken_;
      taken_samples_ += static_cast<double>(batch.count);
      exchange_->set_samples(taken_samples_);
      if (!members_ || members_->rank() == 0) exchange_->set_batches(taken_);
    }
    const bool ended = synchronized && batch.applied == samples_;
    if (batch.count > 0 || taken_ > 0 || batch.stop != 0 || ended) return batch;
    synchronize();
  }
}

servers::DealProgress ServedModule::progress() {
  return exchange_->progress();
}

void ServedModule::synchronize() {
  meet();  // All gradients are applied.
  pull();
  meet();  // Nobody pushes while another one pulls.
}

servers::Meeting ServedModule::meet() {
  host().finish();
  return exchange_->meet();
}

void ServedModule::pull() {
  host().finish();
  std::vector<LentSpan> values;
  for (const FlatUnit& unit : shards_->units()) {
    values.push_back(lend_on_device(unit.flat(), host().errors().name("parameters")));
  }
  exchange_->pull(values);
}

void ServedModule::note_random_state() {
  exchange_->set_random(random_checksum());
}

std::vector<std::vector<servers::OrderRecord>> ServedModule::order() {
  host().finish();
  std::vector<std::vector<servers::OrderRecord>> by_server;
  for (int server = 0; server < placement().servers; ++server) {
    by_server.push_back(exchange_->order(server));
  }
  return by_server;
}

servers::Placement ServedModule::placement() const {
  return exchange_->placement();
}

std::size_t ServedModule::payload_bytes_sent() const {
  return pairs_->payload_bytes_sent() + (members_ ? members_->payload_bytes_sent() : 0);
}

servers::ServerReport ServedModule::report() {
  host().finish();
  return exchange_->report();
}

}  // namespace gradwire
