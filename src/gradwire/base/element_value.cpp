#include "gradwire/base/element_value.h"

#include <bit>
#include <cstdint>
#include <cstring>

namespace gradwire {
namespace {

template <class T>
void put(std::byte* at, T value) {
  std::memcpy(at, &value, sizeof value);
}

template <class T>
T get(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

std::uint16_t bfloat16_bits(double value) {
  const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(value));
  return static_cast<std::uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}

}  // namespace

void store_element(std::byte* at, DataType type, double value) {
  switch (type) {
    case DataType::float32:
      return put(at, static_cast<float>(value));
    case DataType::float64:
      return put(at, value);
    case DataType::bfloat16:
      return put(at, bfloat16_bits(value));
    case DataType::float16:
      return put(at, static_cast<_Float16>(value));
    case DataType::int32:
      return put(at, static_cast<std::int32_t>(value));
    case DataType::int64:
      return put(at, static_cast<std::int64_t>(value));
    case DataType::uint8:
      return put(at, static_cast<std::uint8_t>(value));
    case DataType::int8:
      return put(at, static_cast<std::int8_t>(value));
    case DataType::int16:
      return put(at, static_cast<std::int16_t>(value));
  }
}

double load_element(const std::byte* at, DataType type) {
  switch (type) {
    case DataType::float32:
      return get<float>(at);
    case DataType::float64:
      return get<double>(at);
    case DataType::bfloat16:
      return std::bit_cast<float>(static_cast<std::uint32_t>(get<std::uint16_t>(at)) << 16);
    case DataType::float16:
      return static_cast<double>(get<_Float16>(at));
    case DataType::int32:
      return get<std::int32_t>(at);
    case DataType::int64:
      return static_cast<double>(get<std::int64_t>(at));
    case DataType::uint8:
      return get<std::uint8_t>(at);
    case DataType::int8:
      return get<std::int8_t>(at);
    case DataType::int16:
      return get<std::int16_t>(at);
  }
  return 0;
}

}  // namespace gradwire
