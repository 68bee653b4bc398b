#include "gradwire/recipe/generate.h"

#include <algorithm>
#include <utility>

#include <ATen/CPUGeneratorImpl.h>
#include <nlohmann/json.hpp>
#include <torch/torch.h>

#include "gradwire/base/refuse.h"
#include "gradwire/data/text.h"
#include "gradwire/host/named_tensor.h"
#include "gradwire/recipe/models.h"
#include "gradwire/recipe/train_config.h"
#include "gradwire/train/checkpoint/safetensors.h"

namespace gradwire::recipe {
namespace {

using Json = nlohmann::ordered_json;

/// The configuration's model that the file describes; {} if it does not.
Json description_of(const SafetensorsFile& file) {
  const auto found = file.metadata.find("model");
  if (found == file.metadata.end()) return Json::object();
  const Json model = Json::parse(found->second, nullptr, /*allow_exceptions=*/false);
  return model.is_object() ? model : Json::object();
}

void copy_into(const torch::nn::Module& module, const SafetensorsFile& file,
               const std::filesystem::path& path) {
  const torch::NoGradGuard no_grad;
  for (const auto& [name, tensor] : all_parameters(module)) {
    const auto found = file.tensors.find(name);
    if (found == file.tensors.end() || found->second.sizes() != tensor.sizes()) {
      refuse("{}: the model has no {} of this shape; was it written by gradwire train?",
             path.string(), name);
    }
    torch::Tensor(tensor).copy_(found->second);
  }
}

/// Returns the model in evaluation mode, and its context.
std::pair<torch::nn::Sequential, std::int64_t> text_model(const std::filesystem::path& path) {
  const SafetensorsFile file = load_safetensors(path);
  Json model = description_of(file);
  const auto position = file.tensors.find("embedding.position");
  if (position == file.tensors.end() || position->second.dim() != 2) {
    const std::string name = model.value("name", "");
    refuse("{} is {}, which does not write text; train one with data.name \"text\"", path.string(),
           name.empty() ? "a file of another program" : "a " + name);
  }
  const std::int64_t context = position->second.size(0);
  model.erase("tie_word_embeddings");  // Both holders are in the file.
  const TrainConfig config =
      parse_train_config({{"data", {{"name", "text"}, {"context", context}}}, {"model", model}});
  torch::nn::Sequential made = make_model(config.model);
  copy_into(*made, file, path);
  made->eval();
  return {made, context};
}

std::int64_t draw(const torch::Tensor& log_probabilities, const GenerateOptions& options,
                  const at::Generator& generator) {
  if (options.temperature == 0) return log_probabilities.argmax().item<std::int64_t>();
  const auto weights = torch::softmax(log_probabilities / options.temperature, 0);
  return torch::multinomial(weights, 1, false, generator).item<std::int64_t>();
}

}  // namespace

void generate(const std::filesystem::path& path, const GenerateOptions& options,
              const std::function<void(char)>& emit) {
  if (options.prompt.empty()) refuse("the prompt is empty; give at least one character");
  auto [model, context] = text_model(path);
  const torch::NoGradGuard no_grad;
  const auto generator = at::detail::createCPUGenerator(options.seed);
  std::string text = options.prompt;
  for (std::int64_t i = 0; i < options.length; ++i) {
    const std::size_t seen = std::min<std::size_t>(text.size(), static_cast<std::size_t>(context));
    auto* const last = reinterpret_cast<std::uint8_t*>(text.data() + text.size() - seen);
    const auto bytes = torch::from_blob(last, {1, static_cast<std::int64_t>(seen)}, torch::kUInt8)
                           .to(torch::kInt64);
    const auto output = model->forward(bytes);  // 1 x vocabulary x seen.
    const auto next = output[0].select(1, -1).narrow(0, 0, kCharacters);
    text += static_cast<char>(draw(next, options, generator));
    emit(text.back());
  }
}

}  // namespace gradwire::recipe
