#include <array>
#include <charconv>
#include <filesystem>
#include <functional>
#include <string_view>

#include "gradwire/base/refuse.h"
#include "gradwire/plan/models/built_in.h"
#include "gradwire/plan/names.h"

namespace gradwire::plan {
namespace {

struct Transformer {
  std::string_view name;
  TransformerSpec spec;
};

/// Depth, width and heads are from the papers' tables; the numbers of parameters are those of the
/// published weights (tests/plan/model_test.cpp).
const std::array<Transformer, 13>& transformers() {
  static const std::array<Transformer, 13> all{{
      {"vit_s", {.layers = 12, .width = 384, .heads = 6, .image = true}},
      {"vit_b", {.layers = 12, .width = 768, .heads = 12, .image = true}},
      {"vit_l", {.layers = 24, .width = 1024, .heads = 16, .image = true}},
      {"bert_base", {.tokens = 512, .vocabulary = 30522, .positions = 512, .bert = true}},
      {"bert_large",
       {.layers = 24,
        .width = 1024,
        .heads = 16,
        .tokens = 512,
        .vocabulary = 30522,
        .positions = 512,
        .bert = true}},
      {"gpt2", {}},
      {"gpt2_medium", {.layers = 24, .width = 1024, .heads = 16}},
      {"gpt2_large", {.layers = 36, .width = 1280, .heads = 20}},
      {"gpt2_xl", {.layers = 48, .width = 1600, .heads = 25}},
      {"llama2_7b",
       {.layers = 32,
        .width = 4096,
        .heads = 32,
        .tokens = 4096,
        .vocabulary = 32000,
        .feed_forward = 11008,
        .positions = 0,
        .llama = true}},
      {"llama2_13b",
       {.layers = 40,
        .width = 5120,
        .heads = 40,
        .tokens = 4096,
        .vocabulary = 32000,
        .feed_forward = 13824,
        .positions = 0,
        .llama = true}},
      {"llama2_70b",
       {.layers = 80,
        .width = 8192,
        .heads = 64,
        .tokens = 4096,
        .vocabulary = 32000,
        .feed_forward = 28672,
        .key_heads = 8,
        .positions = 0,
        .llama = true}},
      {"transformer", {}},
  }};
  return all;
}

struct Other {
  std::string_view name;
  ModelShape (*make)();
};

constexpr std::array<Other, 3> kOthers{{
    {"resnet50", [] { return resnet_model("resnet50", 6); }},
    {"resnet101", [] { return resnet_model("resnet101", 23); }},
    {"vgg16", [] { return vgg16_model(); }},
}};

struct Alias {
  std::string_view name, meant;
};
constexpr std::array<Alias, 5> kAliases{{{"llama_7b", "llama2_7b"},
                                         {"llama_13b", "llama2_13b"},
                                         {"llama_70b", "llama2_70b"},
                                         {"gpt2_small", "gpt2"},
                                         {"bert", "bert_base"}}};

struct Key {
  std::string_view name;
  int TransformerSpec::*member;
  int low, high;
};
constexpr std::array<Key, 6> kKeys{{{"layers", &TransformerSpec::layers, 1, 10000},
                                    {"width", &TransformerSpec::width, 1, 1 << 20},
                                    {"heads", &TransformerSpec::heads, 1, 1 << 16},
                                    {"tokens", &TransformerSpec::tokens, 1, 1 << 24},
                                    {"vocabulary", &TransformerSpec::vocabulary, 1, 1 << 24},
                                    {"feed_forward", &TransformerSpec::feed_forward, 1, 1 << 24}}};

/// Applies one "key=value" setting of a transformer.
void set(TransformerSpec& spec, std::string_view setting) {
  const std::size_t equals = setting.find('=');
  const Key* const key = find_named(kKeys, setting.substr(0, equals));
  if (key == nullptr) refuse_name("setting of a model", setting.substr(0, equals), names_of(kKeys));
  const std::string_view text =
      equals == std::string_view::npos ? std::string_view{} : setting.substr(equals + 1);
  int value = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || rest != text.data() + text.size() || value < key->low ||
      value > key->high) {
    refuse("{}={}: expected a whole number from {} to {}", key->name, text, key->low, key->high);
  }
  spec.*(key->member) = value;
}

ModelShape transformer_with(const Transformer& base, std::string_view settings) {
  TransformerSpec spec = base.spec;
  spec.name = base.name;
  const bool fixed = base.name != "transformer";
  while (!settings.empty()) {
    const std::size_t comma = settings.find(',');
    const std::string_view setting = settings.substr(0, comma);
    if (fixed && (spec.image || !plain_name(setting).starts_with("tokens="))) {
      refuse(
          "{}:{}: of {} only the tokens of a text can be set, not {}; use "
          "transformer:layers=...,width=... for others",
          base.name, settings, base.name, setting);
    }
    set(spec, setting);
    settings.remove_prefix(comma == std::string_view::npos ? settings.size() : comma + 1);
  }
  if (spec.width % spec.heads != 0)
    refuse("{} heads do not divide a width of {}", spec.heads, spec.width);
  if (spec.positions > 0) spec.positions = fixed ? spec.positions : spec.tokens;
  return transformer_model(spec);
}

}  // namespace

std::vector<std::string_view> model_names() {
  std::vector<std::string_view> names = names_of(kOthers);
  for (const Transformer& model : transformers()) names.push_back(model.name);
  return names;
}

ModelShape model_named(const std::string& name) {
  const std::size_t colon = name.find(':');
  std::string_view plain = std::string_view(name).substr(0, colon);
  if (const Alias* alias = find_named(kAliases, plain)) plain = alias->meant;
  const std::string_view settings =
      colon == std::string::npos ? std::string_view{} : std::string_view(name).substr(colon + 1);
  if (const auto* transformer = find_named(transformers(), plain))
    return transformer_with(*transformer, settings);
  if (const Other* other = find_named(kOthers, plain)) {
    if (!settings.empty()) refuse("{} has no settings: {}", plain, settings);
    return other->make();
  }
  if (std::filesystem::exists(name)) return model_of(workload::read_profile(name));
  refuse_name("model", plain, model_names(),
              "; or the profile file of gradwire train --record-profile; or "
              "--params 7.5B");
}

}  // namespace gradwire::plan
