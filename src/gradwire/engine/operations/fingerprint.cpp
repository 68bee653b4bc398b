#include "gradwire/engine/operations/fingerprint.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace gradwire::engine {

void Fingerprint::set_algorithm(std::string_view name) {
  algorithm.fill('\0');
  std::copy_n(name.begin(), std::min(name.size(), algorithm.size()), algorithm.begin());
}

std::string_view Fingerprint::algorithm_name() const {
  const auto* end = std::find(algorithm.begin(), algorithm.end(), '\0');
  return {algorithm.data(), static_cast<std::size_t>(end - algorithm.begin())};
}

Fingerprint Fingerprint::from_there() const {
  Fingerprint there = *this;
  std::swap(there.sent, there.expected);
  return there;
}

std::string Fingerprint::describe() const {
  const std::string layout = sent == 0 ? "" : fmt::format(" in layout {:x}", sent);
  switch (collective) {
    case schedule::Collective::barrier:
      return "barrier";
    case schedule::Collective::all_reduce:
    case schedule::Collective::reduce_scatter:
      return fmt::format("{} of {} {}{} ({}, {})", name_of(collective), count, name_of(type),
                         layout, name_of(op), algorithm_name());
    case schedule::Collective::broadcast:
      return fmt::format("broadcast of {} {} from rank {} ({})", count, name_of(type), root,
                         algorithm_name());
    case schedule::Collective::reduce:
      return fmt::format("reduce of {} {} ({}, {}) to rank {}", count, name_of(type), name_of(op),
                         algorithm_name(), root);
    case schedule::Collective::gather:
    case schedule::Collective::scatter:
      return fmt::format("{} of {} {}, root rank {} ({})", name_of(collective), count,
                         name_of(type), root, algorithm_name());
    case schedule::Collective::all_to_all:
      if (sent != 0 || expected != 0) {
        return fmt::format("all_to_all of {} ({}), {} elements to the other and {} from it",
                           name_of(type), algorithm_name(), sent, expected);
      }
      [[fallthrough]];
    case schedule::Collective::all_gather:
      return fmt::format("{} of {} {}{} ({})", name_of(collective), count, name_of(type), layout,
                         algorithm_name());
    case schedule::Collective::point_to_point:
      return fmt::format("message of {} {} from rank {}", count, name_of(type), root);
  }
  return "unknown operation";
}

void encode(const Fingerprint& fingerprint, std::span<std::byte, kFingerprintBytes> into) {
  std::byte* at = into.data();
  at[0] = static_cast<std::byte>(fingerprint.collective);
  at[1] = static_cast<std::byte>(fingerprint.type);
  at[2] = static_cast<std::byte>(fingerprint.op);
  at[3] = std::byte{0};
  store_little_endian(at + 4, static_cast<std::uint32_t>(fingerprint.root));
  store_little_endian(at + 8, fingerprint.count);
  std::memcpy(at + 16, fingerprint.algorithm.data(), fingerprint.algorithm.size());
  store_little_endian(at + 32, fingerprint.sent);
  store_little_endian(at + 40, fingerprint.expected);
}

Result<Fingerprint> decode_fingerprint(ConstBytes from) {
  if (from.size() != kFingerprintBytes) {
    return failure(ErrorKind::corrupted, "an announcement of the wrong size");
  }
  const std::byte* at = from.data();
  Fingerprint f{.collective = static_cast<schedule::Collective>(at[0]),
                .type = static_cast<DataType>(at[1]),
                .op = static_cast<ReduceOp>(at[2]),
                .root = static_cast<Rank>(load_little_endian<std::uint32_t>(at + 4)),
                .count = load_little_endian<std::uint64_t>(at + 8)};
  std::memcpy(f.algorithm.data(), at + 16, f.algorithm.size());
  f.sent = load_little_endian<std::uint64_t>(at + 32);
  f.expected = load_little_endian<std::uint64_t>(at + 40);
  if (f.collective > schedule::Collective::all_to_all || f.type > DataType::int16 ||
      f.op > ReduceOp::bit_xor) {
    return failure(ErrorKind::corrupted, "an announcement of an unknown operation");
  }
  return f;
}

}  // namespace gradwire::engine
