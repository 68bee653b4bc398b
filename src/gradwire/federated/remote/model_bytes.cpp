#include "gradwire/federated/remote/model_bytes.h"

#include <array>
#include <bit>

#include <fmt/format.h>
#include <zlib.h>

#include "gradwire/base/check.h"
#include "gradwire/federated/secure/crypto.h"

namespace gradwire::federated {
namespace {

constexpr int kDeflateLevel = 3;

std::size_t width_of(ModelType type) {
  return type == ModelType::bf16 ? 2 : 4;
}

std::uint32_t bits_of(float value, ModelType type) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return type == ModelType::bf16 ? bits >> 16 : bits;
}

float value_of(std::uint32_t bits, ModelType type) {
  return std::bit_cast<float>(type == ModelType::bf16 ? bits << 16 : bits);
}

/// Small for small differences of either sign, modulo 2^(8 width) (zigzag).
std::uint32_t folded(std::uint32_t difference, ModelType type) {
  if (type == ModelType::bf16)
    difference = static_cast<std::uint32_t>(static_cast<std::int16_t>(difference));
  return difference << 1 ^ (difference >> 31 != 0 ? ~0U : 0U);
}

std::uint32_t unfolded(std::uint32_t folded) {
  return folded >> 1 ^ ((folded & 1) != 0 ? ~0U : 0U);
}

tl::unexpected<Error> wrong_size(std::size_t bytes, std::size_t elements, ModelType type) {
  return failure(ErrorKind::corrupted,
                 fmt::format("the server's model has {} bytes, and this one has {} elements of {}: "
                             "they are not the same model",
                             bytes, elements, width_of(type)));
}

}  // namespace

std::vector<std::byte> model_bytes(std::span<const float> values, ModelType type) {
  const std::size_t width = width_of(type);
  std::vector<std::byte> bytes(values.size() * width);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::uint32_t bits = bits_of(values[i], type);
    if (width == 2)
      store_little_endian(&bytes[i * 2], static_cast<std::uint16_t>(bits));
    else
      store_little_endian(&bytes[i * 4], bits);
  }
  return bytes;
}

Result<std::vector<float>> model_in(ConstBytes bytes, std::size_t elements, ModelType type) {
  const std::size_t width = width_of(type);
  if (bytes.size() != elements * width) return wrong_size(bytes.size(), elements, type);
  std::vector<float> values(elements);
  for (std::size_t i = 0; i < elements; ++i) {
    values[i] = value_of(width == 2 ? load_little_endian<std::uint16_t>(&bytes[i * 2])
                                    : load_little_endian<std::uint32_t>(&bytes[i * 4]),
                         type);
  }
  return values;
}

std::vector<std::byte> model_difference(std::span<const float> values, std::span<const float> base,
                                        ModelType type) {
  GRADWIRE_CHECK(values.size() == base.size());
  const std::size_t width = width_of(type), count = values.size();
  std::vector<std::byte> planes(count * width);
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t one = folded(bits_of(values[i], type) - bits_of(base[i], type), type);
    for (std::size_t k = 0; k < width; ++k)
      planes[k * count + i] = static_cast<std::byte>(one >> (8 * k));
  }
  uLongf size = ::compressBound(planes.size());
  std::vector<std::byte> deflated(size);
  const int done =
      ::compress2(reinterpret_cast<Bytef*>(deflated.data()), &size,
                  reinterpret_cast<const Bytef*>(planes.data()), planes.size(), kDeflateLevel);
  if (done != Z_OK)
    throw Exception(ErrorKind::system,
                    fmt::format("zlib cannot deflate the model: error {}", done));
  deflated.resize(size);
  return deflated;
}

Result<std::vector<float>> model_after(ConstBytes difference, std::span<const float> base,
                                       ModelType type) {
  const std::size_t width = width_of(type), count = base.size();
  std::vector<std::byte> planes(count * width);
  uLongf size = planes.size();
  const int done =
      ::uncompress(reinterpret_cast<Bytef*>(planes.data()), &size,
                   reinterpret_cast<const Bytef*>(difference.data()), difference.size());
  if (done != Z_OK || size != planes.size()) return wrong_size(size, count, type);
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    std::uint32_t one = 0;
    for (std::size_t k = 0; k < width; ++k)
      one |= static_cast<std::uint32_t>(planes[k * count + i]) << (8 * k);
    values[i] = value_of(bits_of(base[i], type) + unfolded(one), type);
  }
  return values;
}

Digest digest_of_model(std::string_view description, std::span<const float> values) {
  std::array<Digest, 2> parts{sha256({bytes_of(description), description.size()}),
                              sha256(model_bytes(values, ModelType::float32))};
  return sha256(std::as_bytes(std::span(parts)));
}

}  // namespace gradwire::federated
