#include "gradwire/workload/profiles.h"

#include <array>
#include <filesystem>

#include "gradwire/base/refuse.h"
#include "gradwire/base/suggest.h"

namespace gradwire::workload {
namespace {

struct BuiltIn {
  std::string_view name;
  CountedProfile (*make)();
};

constexpr std::array<BuiltIn, 5> kBuiltIn{{
    {"resnet50",
     [] {
       return resnet_profile("resnet50", {3, 4, 6, 3});
     }},
    {"resnet101",
     [] {
       return resnet_profile("resnet101", {3, 4, 23, 3});
     }},
    {"vit_s", [] { return vit_profile("vit_s", 384); }},
    {"vit_b", [] { return vit_profile("vit_b", 768); }},
    {"gpt2", [] { return gpt2_profile(); }},
}};

constexpr std::string_view kUniform = "uniform:";

const BuiltIn* find(std::string_view name) {
  for (const BuiltIn& model : kBuiltIn) {
    if (model.name == name) return &model;
  }
  return nullptr;
}

[[noreturn]] void refuse_name(std::string_view name) {
  refuse(unknown_name("profile", name, profile_names()) +
         ", uniform:LAYERSxBYTES; or give a file that gradwire train "
         "--record-profile wrote");
}

}  // namespace

std::vector<std::string_view> profile_names() {
  std::vector<std::string_view> names;
  for (const BuiltIn& model : kBuiltIn) names.push_back(model.name);
  return names;
}

LayerProfile profile_named(const std::string& name_or_path) {
  if (const BuiltIn* model = find(name_or_path)) return model->make().profile;
  if (std::filesystem::exists(name_or_path)) return read_profile(name_or_path);
  if (name_or_path.starts_with(kUniform)) return uniform_profile(name_or_path);
  refuse_name(name_or_path);
}

double profile_multiplications(std::string_view name) {
  const BuiltIn* model = find(name);
  if (model == nullptr) refuse_name(name);
  return model->make().multiplications;
}

}  // namespace gradwire::workload
