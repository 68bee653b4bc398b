#include "gradwire/train/checkpoint/checkpoint.h"

#include <algorithm>
#include <span>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "gradwire/base/random.h"
#include "gradwire/base/refuse.h"
#include "gradwire/checkpoint/checkpoint_folder.h"
#include "gradwire/train/activation/activation_checkpoint.h"
#include "gradwire/train/checkpoint/load.h"
#include "gradwire/train/checkpoint/local_state.h"
#include "gradwire/train/checkpoint/replicated.h"
#include "gradwire/train/checkpoint/safetensors.h"

namespace gradwire {
namespace {

using nlohmann::json;
using Tensors = std::map<std::string, torch::Tensor>;

constexpr const char* kFeedback = "feedback.";
constexpr const char* kStep = "feedback.codec.step";
constexpr const char* kOwn = "own.";
constexpr const char* kRandom = "random";

/// Before the names of the states of a run's exchange number `index`.
std::string feedback_prefix(std::size_t index) {
  return index == 0 ? kFeedback : fmt::format("{}{}.", kFeedback, index);
}

/// Returns the random generators that a run of this model uses, by their names in a checkpoint: the
/// CPU's, and those of the model's accelerators in order of appearance.
std::map<std::string, c10::Device> generators_of(const std::vector<TensorPiece>& pieces) {
  std::vector<c10::Device> accelerators;
  for (const auto& piece : pieces) {
    const auto device = piece.data.device();
    if (device.is_cpu() || std::ranges::find(accelerators, device) != accelerators.end()) continue;
    accelerators.push_back(device);
  }
  std::map<std::string, c10::Device> generators{{kRandom, torch::kCPU}};
  for (std::size_t i = 0; i < accelerators.size(); ++i) {
    const auto kind = c10::DeviceTypeName(accelerators[i].type(), /*lower_case=*/true);
    generators.emplace(fmt::format("{}.{}.{}", kRandom, kind, i), accelerators[i]);
  }
  return generators;
}

/// Seeds the generators for a run resumed on another mesh from the state that rank 0's had:
/// different from the run's start and from other runs, but reproducible.
void begin_random(const Tensors& of_rank_0, int rank, const std::vector<TensorPiece>& pieces) {
  std::uint64_t seed = static_cast<std::uint64_t>(rank);
  const auto state = of_rank_0.find(kRandom);
  if (state != of_rank_0.end()) {
    const std::span bytes(state->second.const_data_ptr<std::uint8_t>(),
                          static_cast<std::size_t>(state->second.numel()));
    for (const std::uint8_t byte : bytes) seed = mixed_seed({seed, byte});
  }
  for (const auto& [name, device] : generators_of(pieces)) set_random_seed(seed, device);
}

std::string run_json(const RunState& run) {
  json values{{"position", json::parse(run.position)},
              {"mesh", run.mesh},
              {"model", json::parse(run.model.progress())}};
  if (run.scaler != nullptr) {
    const auto [scale, steps, tolerated] = run.scaler->state();
    values["loss_scale"] = {
        {"scale", scale}, {"steps_since_change", steps}, {"tolerated", tolerated}};
  }
  return values.dump();
}

/// Tensors that differ between ranks are also saved per rank.
void add_own(std::vector<NamedTensor>& tensors, const std::vector<TensorPiece>& pieces) {
  for (const auto& piece : pieces) {
    if (!piece.common) tensors.push_back({kOwn + piece.name, piece.data});
  }
}

void load_own(const std::vector<TensorPiece>& pieces, const Tensors& saved) {
  const torch::NoGradGuard no_grad;
  for (const auto& piece : pieces) {
    const auto found = saved.find(kOwn + piece.name);
    if (found == saved.end() || found->second.numel() != piece.data.numel()) continue;
    piece.data.detach().copy_(found->second);
  }
}

void load_scaler(const RunState& run, const json& values) {
  if (run.scaler == nullptr || !values.contains("loss_scale")) return;
  const auto& saved = values["loss_scale"];
  run.scaler->load({.scale = saved.at("scale").get<double>(),
                    .steps_since_change = saved.at("steps_since_change").get<std::int64_t>(),
                    .tolerated = saved.value("tolerated", std::int64_t{0})});
}

/// Returns what `read` reads of RunState's values in a checkpoint.
template <class Read>
auto read_run(const CheckpointLoader& loader, const Read& read) {
  try {
    return read(json::parse(loader.manifest().run));
  } catch (const json::exception& error) {
    refuse("{}: 'run' is invalid ({}); use another checkpoint",
           (loader.path() / checkpoint::kManifestName).string(), error.what());
  }
}

/// Restores what is the same on all ranks; returns the position.
std::string load_run(const RunState& run, const CheckpointLoader& loader) {
  return read_run(loader, [&](const json& values) {
    load_scaler(run, values);
    return values.value("position", json::object()).dump();
  });
}

/// Returns Checkpointable::progress() of the run that saved.
std::string progress_of_model(const CheckpointLoader& loader) {
  return read_run(loader,
                  [](const json& values) { return values.value("model", json::object()).dump(); });
}

/// Returns the mesh of the run that saved if it is known to be another one, or an empty text.
std::string other_mesh(const RunState& run, const CheckpointLoader& loader) {
  const auto saved =
      read_run(loader, [](const json& values) { return values.value("mesh", std::string()); });
  return run.mesh.empty() || saved == run.mesh ? "" : saved;
}

/// Loads the generators' states on the same mesh only. On another, `saved` holds the codecs'
/// warm-up state.
void load_rank_state(const RunState& run, const std::vector<TensorPiece>& pieces,
                     const Tensors& saved, bool same) {
  for (std::size_t i = 0; i < run.feedback.size(); ++i) {
    const std::string own = feedback_prefix(i);
    const bool has_own = saved.contains(own + "codec.step");
    load_state(*run.feedback[i], saved, has_own ? own : kFeedback);
  }
  if (!same) return;
  for (const auto& [name, device] : generators_of(pieces)) {
    const auto random = saved.find(name);
    if (random != saved.end()) set_random_state(random->second, device);
  }
}

std::string summary_of(const RunState& run, const CheckpointLoader& loader, std::size_t left) {
  const auto& manifest = loader.manifest();
  auto text = fmt::format("resumed from {}, after {} steps", loader.path().string(), manifest.step);
  std::vector<std::string> anew;
  const std::string mesh = other_mesh(run, loader);
  // With servers, one rank may have saved for all.
  const bool same_ranks = loader.same_ranks() || manifest.ranks() == 1;
  if (!mesh.empty() && same_ranks) {
    text += fmt::format(" of {}, on {}", mesh, run.mesh);
  } else if (!same_ranks) {
    text += fmt::format(" of {} ranks, on {}", manifest.ranks(), run.group->getSize());
  }
  if (!loader.same_ranks() || !mesh.empty()) {
    text += ": the model and its optimizer are resharded";
    anew.emplace_back("random numbers");
    if (!run.feedback.empty()) anew.emplace_back("error feedback");
    if (run.local != nullptr) anew.emplace_back("local steps and their optimizers");
  }
  if (left > 0) anew.emplace_back(fmt::format("{} optimizer states that it lacks", left));
  if (anew.empty()) return text;
  return text + fmt::format("; reset: {}", fmt::join(anew, ", "));
}

CheckpointContent content_of(const RunState& run) {
  CheckpointContent content{
      .pieces = run.model.pieces(false), .model = run.description, .run = run_json(run)};
  add_own(content.rank_tensors, content.pieces);
  if (run.local != nullptr) split_local_state(*run.local, content);
  for (std::size_t i = 0; i < run.feedback.size(); ++i) {
    for (auto& state : state_of(*run.feedback[i], feedback_prefix(i))) {
      content.rank_tensors.push_back(std::move(state));
    }
  }
  for (const auto& [name, device] : generators_of(content.pieces)) {
    content.rank_tensors.push_back({name, random_state(device)});
  }
  return content;
}

}  // namespace

std::filesystem::path save_checkpoint(const RunState& run, std::int64_t step,
                                      const SavePlace& place) {
  return save_pieces(*run.group, content_of(run), step, place);
}

ResumedRun load_checkpoint(const std::filesystem::path& path, const RunState& run) {
  CheckpointLoader loader(*run.group, path);
  const bool same = loader.same_ranks() && other_mesh(run, loader).empty();
  std::map<std::string, Shape> shapes;
  for (const auto& tensor : loader.manifest().tensors) shapes[tensor.name] = tensor.shape;
  run.model.begin_loading(shapes);
  const auto pieces = run.model.pieces(true);
  const auto saved = loader.rank_tensors(same ? run.group->getRank() : 0, [&](const auto& name) {
    return same || name == kStep || name == kRandom;
  });
  std::size_t left = 0;
  if (run.local != nullptr) {
    load_local(loader, *run.local, pieces, saved);
  } else {
    left = loader.load(pieces);
  }
  collective_try(*run.group, [&] {
    if (same) load_own(pieces, saved);
    if (!same) begin_random(saved, run.group->getRank(), pieces);
    load_rank_state(run, pieces, saved, same);
    return "";
  });
  run.model.loaded();
  run.model.resume_at(loader.manifest().step, progress_of_model(loader));
  return {.step = loader.manifest().step,
          .position = load_run(run, loader),
          .path = loader.path(),
          .summary = summary_of(run, loader, left)};
}

bool any_checkpoint(c10d::ProcessGroup& group, const std::filesystem::path& folder) {
  const auto any = collective_try(group, [&]() -> std::string {
    return group.getRank() == 0 && !checkpoint::list_checkpoints(folder).empty() ? "yes" : "";
  });
  return any[0] == "yes";
}

void save_model(const std::filesystem::path& path, const torch::nn::Module& module,
                const std::string& description) {
  auto tensors = all_parameters(module);
  for (auto& buffer : all_buffers(module)) tensors.push_back(std::move(buffer));
  save_model(path, tensors, description);
}

void save_model(const std::filesystem::path& path, const std::vector<NamedTensor>& tensors,
                const std::string& description) {
  save_safetensors(path, tensors, {{"format", "pt"}, {"model", description}});
}

}  // namespace gradwire
