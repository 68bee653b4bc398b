#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "gradwire/base/refuse.h"
#include "gradwire/host/named_tensor.h"
#include "gradwire/pipeline/weight_rules.h"
#include "gradwire/train/checkpoint/replicated.h"
#include "gradwire/train/optim/layerwise.h"
#include "gradwire/train/parallel/parallel_module.h"
#include "gradwire/train/pipeline/stage_builder.h"

/// The checks before a model trains: options that go together, and ranks that agree.
namespace gradwire {

/// Checks that weights and schedule go together.
WeightMethod StageBuilder::find_method() const {
  const WeightMethod method =
      value_or_throw(pipeline::weight_method_for(options_.schedule, options_.weights));
  if (method != WeightMethod::flush) check_asynchronous();
  if (options_.recompute && !keeps_weights(method)) {
    refuse(
        "recompute needs a backward with the weights of its forward, but weights {} use others: "
        "use stash or 2bw",
        name_of(method));
  }
  return method;
}

/// Refuses what needs the gradients of all stages, or one version of the weights.
void StageBuilder::check_asynchronous() const {
  if (options_.clip_norm) {
    refuse(
        "clip_norm needs the gradients of all stages before an update, but {} updates each stage "
        "on its own: use a synchronous schedule, such as zero_bubble",
        options_.schedule);
  }
  if (options_.data.zero_stage != 0) {
    refuse(
        "ZeRO stage {} needs one version of the weights, but {} updates each stage while "
        "micro-batches are under way: use zero_stage 0, whose replicas average whole gradients, or "
        "a synchronous schedule, such as zero_bubble",
        options_.data.zero_stage, options_.schedule);
  }
}

/// Refuses what the stages of a pipeline do not have.
void StageBuilder::check_data_options() const {
  const ZeroOptions& data = options_.data.options;
  const auto refuse_if = [](bool wrong, std::string_view option, std::string_view remedy) {
    if (wrong) refuse("a Pipeline does not have data.options.{}; {}", option, remedy);
  };
  refuse_if(data.max_grad_norm != 0, "max_grad_norm", "use clip_norm");
  refuse_if(!data.offload_optimizer.empty(), "offload_optimizer", "leave it out");
  refuse_if(data.parameters.has_value(), "parameters", "its stages are in their original type");
}

void StageBuilder::check_ties(const Layers& layers) const {
  if (layers.ties().empty() || !made_.is_asynchronous()) return;
  refuse(
      "{} are tied and need one update, but {} updates each stage on its own: use a synchronous "
      "schedule, such as zero_bubble",
      fmt::join(layers.ties().front(), " and "), options_.schedule);
}

/// Both ends of a message draw the random numbers of one replica, and holders of a tie exchange
/// shards of the same range: the ranks of a pipeline must have the same place among the replicas.
void StageBuilder::check_places() const {
  const auto& data = options_.data.process_group;
  const auto places = gather_texts(*options_.process_group,
                                   fmt::format("{} of {}", data->getRank(), data->getSize()));
  const auto other = std::ranges::find_if(places, [&](const auto& p) { return p != places[0]; });
  if (other == places.end()) return;
  refuse(
      "rank {} of the pipeline is replica {}, and rank 0 is replica {}: use the groups of one "
      "ParallelMesh",
      other - places.begin(), *other, places[0]);
}

/// All ranks must have the same layers and options, or they would wait for each other for ever.
void StageBuilder::check_agreement(const Layers& layers) const {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < layers.size(); ++i) names.push_back(layers.name(i));
  std::vector<std::string> skips;
  for (const Layers::Skip& skip : layers.skips()) {
    skips.push_back(fmt::format("{} to {}", names[skip.from], names[skip.to]));
  }
  const auto text = [&] {
    const pipeline::PipelineSchedule schedule =
        schedule_for(options_, made_, options_.micro_batches, true);
    check_cut(layers, options_.cut, schedule.stages());
    const auto& [forward, backward] = options_.activation_codec;
    codecs_of(forward, schedule.stages() - 1);
    codecs_of(backward, schedule.stages() - 1);
    return fmt::format(
        "layers {}; skip connections {}; ties {}; schedule {} {}; {} micro-batches; cut {}; "
        "seed {}; clip {}; recompute {}; codecs {}, {}; ZeRO stage {}\n{}",
        fmt::join(names, " "), fmt::join(skips, ", "), layers.ties(), options_.schedule,
        name_of(made_.method), options_.micro_batches, fmt::join(options_.cut, " "), options_.seed,
        options_.clip_norm.value_or(0), options_.recompute, forward, backward,
        options_.data.zero_stage, to_csv(schedule));
  };
  for (const ProcessGroup& group : groups_of(options_)) {
    const auto texts = collective_try(*group, text);
    const auto other = std::ranges::find_if(texts, [&](const auto& t) { return t != texts[0]; });
    if (other == texts.end()) continue;
    refuse("rank {} has another pipeline than rank 0: {} against {}", other - texts.begin(),
           other->substr(0, other->find('\n')), texts[0].substr(0, texts[0].find('\n')));
  }
}

/// A LayerwiseOptimizer scales a step by the norm of the whole parameter.
void StageBuilder::check_optimizer(const LocalStage& stage) const {
  const auto boxes = parameter_boxes(*stage.module);
  if (boxes.empty()) return;
  const auto example = optimizer_factory()(trainable_parameters(*stage.module));
  if (dynamic_cast<const LayerwiseOptimizer*>(example.get()) == nullptr) return;
  refuse(
      "Lars, Lamb and RangerLars need norms of whole parameters, but {} is divided over ranks: use "
      "another optimizer, or replicate that layer",
      boxes.begin()->first);
}

/// Codecs draw random numbers by bucket. Parts of equal sizes have the same buckets on all ranks
/// that share a layer, so that replicated parameters stay equal there.
void StageBuilder::check_gradient_codec(const LocalStage& stage) const {
  if (options_.data.options.codec == "none" || options_.tensor->getSize() == 1) return;
  std::string sizes;
  for (const auto& [name, tensor] : all_parameters(*stage.module)) {
    sizes += fmt::format("{} [{}]\n", name, fmt::join(tensor.sizes(), ", "));
  }
  const auto all = gather_texts(*options_.tensor, sizes);
  const auto other = std::ranges::find_if(all, [&](const auto& each) { return each != all[0]; });
  if (other == all.end()) return;
  const auto at = std::ranges::mismatch(all[0], *other).in1 - all[0].begin();
  const auto begin = all[0].rfind('\n', static_cast<std::size_t>(at)) + 1;
  refuse(
      "codec {} needs parts of equal size, but other ranks have another part than {}; replicate "
      "that layer, choose sizes that divide, or use no codec",
      options_.data.options.codec, all[0].substr(begin, all[0].find('\n', begin) - begin));
}

}  // namespace gradwire
