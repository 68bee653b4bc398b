#include "gradwire/recipe/models.h"

#include "gradwire/data/fashion_mnist.h"
#include "gradwire/recipe/resnet_model.h"
#include "gradwire/recipe/text_model.h"
#include "gradwire/torch/vector_math.h"

namespace gradwire {
namespace {

constexpr std::int64_t kSide = 28;

void add_convolution(torch::nn::Sequential& model, const std::string& number, std::int64_t from,
                     std::int64_t to) {
  model->push_back("conv" + number,
                   torch::nn::Conv2d(torch::nn::Conv2dOptions(from, to, 3).padding(1)));
  model->push_back("relu" + number, torch::nn::ReLU());
  model->push_back("pool" + number, torch::nn::MaxPool2d(2));
}

void add_classifier(torch::nn::Sequential& model, const ModelConfig& config, std::int64_t inputs) {
  model->push_back("flatten", torch::nn::Flatten());
  model->push_back("hidden", torch::nn::Linear(inputs, config.hidden));
  model->push_back("relu", torch::nn::ReLU());
  if (config.dropout > 0) model->push_back("dropout", torch::nn::Dropout(config.dropout));
  model->push_back("output", torch::nn::Linear(config.hidden, kFashionMnistClasses));
  model->push_back("log_softmax", torch::nn::LogSoftmax(1));
}

}  // namespace

torch::nn::Sequential make_model(const ModelConfig& config) {
  initialize_vector_math();
  torch::nn::Sequential model;
  if (config.name == "transformer" || config.name == "gpt") {
    add_transformer(model, config);
    return model;
  }
  if (config.name == "resnet") {
    add_resnet(model, config);
    return model;
  }
  if (config.name == "mlp") {
    add_classifier(model, config, kSide * kSide);
    return model;
  }
  add_convolution(model, "1", 1, config.channels);
  add_convolution(model, "2", config.channels, 2 * config.channels);
  add_classifier(model, config, 2 * config.channels * (kSide / 4) * (kSide / 4));
  return model;
}

}  // namespace gradwire
