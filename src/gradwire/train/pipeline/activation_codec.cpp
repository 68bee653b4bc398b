#include "gradwire/train/pipeline/activation_codec.h"

#include <cstddef>
#include <iterator>
#include <span>
#include <sstream>

#include "gradwire/base/error.h"
#include "gradwire/base/refuse.h"
#include "gradwire/codec/catalogue.h"

namespace gradwire {
namespace {

std::span<std::byte> bytes_of(const torch::Tensor& encoded) {
  return {static_cast<std::byte*>(encoded.data_ptr()), encoded.nbytes()};
}

std::span<float> values_of(const torch::Tensor& tensor) {
  return {tensor.data_ptr<float>(), static_cast<std::size_t>(tensor.numel())};
}

}  // namespace

std::vector<ActivationCodec> codecs_of(const std::string& names, int boundaries) {
  std::vector<std::string> given;
  std::istringstream parts(names);
  for (std::string name; std::getline(parts, name, ',');) given.push_back(name);
  const bool is_one = given.size() == 1;
  if (!is_one && std::ssize(given) != boundaries) {
    refuse("activation codecs {}: expected one name, or one for each of {} boundaries", names,
           boundaries);
  }
  std::vector<ActivationCodec> codecs;
  for (const std::string& name : given) codecs.emplace_back(name);
  while (is_one && std::ssize(codecs) < boundaries) codecs.emplace_back(given.front());
  return codecs;
}

ActivationCodec::ActivationCodec(const std::string& name)
    : codec_(name == "none" ? nullptr : value_or_throw(codec::make_codec(name))) {}

torch::Tensor ActivationCodec::buffer(std::int64_t elements) const {
  const std::size_t bytes = codec_->encoded_bytes(static_cast<std::size_t>(elements));
  return torch::empty({static_cast<std::int64_t>(bytes)}, torch::kByte);
}

torch::Tensor ActivationCodec::encode(const torch::Tensor& tensor, std::uint64_t seed) const {
  torch::Tensor encoded = buffer(tensor.numel());
  codec_->encode(values_of(tensor), {}, seed, bytes_of(encoded));
  return encoded;
}

void ActivationCodec::decode(const torch::Tensor& encoded, std::uint64_t seed,
                             torch::Tensor& tensor) const {
  value_or_throw(codec_->decode(bytes_of(encoded), seed, values_of(tensor)));
}

}  // namespace gradwire
