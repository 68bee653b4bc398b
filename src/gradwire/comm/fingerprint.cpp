#include "gradwire/comm/fingerprint.h"

#include <algorithm>

#include <fmt/format.h>

namespace gradwire {

void Fingerprint::set_algorithm(std::string_view name) {
  algorithm.fill('\0');
  std::copy_n(name.begin(), std::min(name.size(), algorithm.size()), algorithm.begin());
}

std::string_view Fingerprint::algorithm_name() const {
  const auto* end = std::find(algorithm.begin(), algorithm.end(), '\0');
  return {algorithm.data(), static_cast<std::size_t>(end - algorithm.begin())};
}

std::string Fingerprint::describe() const {
  switch (collective) {
    case Collective::barrier:
      return "barrier";
    case Collective::all_reduce:
    case Collective::reduce_scatter:
      return fmt::format("{} of {} {} ({}, {})", name_of(collective), count, name_of(type),
                         name_of(op), algorithm_name());
    case Collective::broadcast:
      return fmt::format("broadcast of {} {} from rank {} ({})", count, name_of(type), root,
                         algorithm_name());
    case Collective::all_gather:
      return fmt::format("all_gather of {} {} ({})", count, name_of(type), algorithm_name());
    case Collective::point_to_point:
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
}

Result<Fingerprint> decode_fingerprint(ConstBytes from) {
  if (from.size() != kFingerprintBytes) {
    return failure(ErrorKind::corrupted, "an announcement of the wrong size");
  }
  const std::byte* at = from.data();
  Fingerprint f{.collective = static_cast<Collective>(at[0]),
                .type = static_cast<DataType>(at[1]),
                .op = static_cast<ReduceOp>(at[2]),
                .root = static_cast<Rank>(load_little_endian<std::uint32_t>(at + 4)),
                .count = load_little_endian<std::uint64_t>(at + 8)};
  std::memcpy(f.algorithm.data(), at + 16, f.algorithm.size());
  if (f.collective > Collective::point_to_point || f.type > DataType::uint8 ||
      f.op > ReduceOp::product) {
    return failure(ErrorKind::corrupted, "an announcement of an unknown operation");
  }
  return f;
}

}  // namespace gradwire
