#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <tuple>
#include <vector>

#include "gradwire/federated/client_id.h"
#include "gradwire/federated/modular_vector.h"
#include "gradwire/federated/secure/crypto.h"
#include "gradwire/federated/secure/secure_policy.h"
#include "gradwire/federated/secure/shamir.h"

/// The messages between clients and the server of secure aggregation, in the order of a round.
/// Lists of clients ascend. kKind and fields_of() are for encode() and decode().
namespace gradwire::federated {

/// A commitment to a client's public keys, short because each client gets those of all.
using KeyDigest = std::array<std::byte, 16>;

/// To the server: keys of this round alone.
struct KeyAdvert {
  std::int64_t round = 0;
  PublicKey channel{};  ///< Its neighbours seal for it with that.
  PublicKey masking{};  ///< They have masks in common with it by that.
  Digest seed{};        ///< SHA-256 of the seed of its own mask, so that a false share shows.
  std::optional<Signature> signature;  ///< Covers signed_keys(); with SecurePolicy::active.
  bool operator==(const KeyAdvert&) const = default;
  static constexpr std::uint8_t kKind = 1;
  static auto fields_of(auto& m) {
    return std::tie(m.round, m.channel, m.masking, m.seed, m.signature);
  }
};

/// To a client: all that take part, and the keys of its neighbours.
struct Roster {
  struct Member {
    ClientId client = 0;
    KeyDigest keys{};
    bool operator==(const Member&) const = default;
    static auto fields_of(auto& m) { return std::tie(m.client, m.keys); }
  };
  struct Neighbour {
    ClientId client = 0;
    PublicKey channel{};
    PublicKey masking{};
    std::optional<Signature> signature;
    bool operator==(const Neighbour&) const = default;
    static auto fields_of(auto& m) { return std::tie(m.client, m.channel, m.masking, m.signature); }
  };
  std::int64_t round = 0;
  std::vector<Member> members;
  std::vector<Neighbour> neighbours;
  bool operator==(const Roster&) const = default;
  static constexpr std::uint8_t kKind = 2;
  static auto fields_of(auto& m) { return std::tie(m.round, m.members, m.neighbours); }
};

/// A share of the seed and one of the masking key, sealed for one neighbour.
using SealedShare = std::array<std::byte, 2 * std::tuple_size_v<Share> + kSealBytes>;

/// To the server: one for each neighbour, in their order.
struct SealedShares {
  std::int64_t round = 0;
  std::vector<SealedShare> shares;
  bool operator==(const SealedShares&) const = default;
  static constexpr std::uint8_t kKind = 3;
  static auto fields_of(auto& m) { return std::tie(m.round, m.shares); }
};

/// To a client: those that its neighbours have sealed for it. With others it has no masks.
struct ForwardedShares {
  struct From {
    ClientId client = 0;
    SealedShare share{};
    bool operator==(const From&) const = default;
    static auto fields_of(auto& m) { return std::tie(m.client, m.share); }
  };
  std::int64_t round = 0;
  std::vector<From> shares;
  bool operator==(const ForwardedShares&) const = default;
  static constexpr std::uint8_t kKind = 4;
  static auto fields_of(auto& m) { return std::tie(m.round, m.shares); }
};

/// Number and bits of the elements of a segment.
struct SegmentShape {
  std::size_t size = 0;
  int bits = 1;
  bool operator==(const SegmentShape&) const = default;
};
std::vector<SegmentShape> shapes_of(std::span<const ModularVector> segments);

/// To the server: the sum of a contribution and masks.
struct MaskedInput {
  std::int64_t round = 0;
  std::vector<ModularVector> segments;
  bool operator==(const MaskedInput&) const = default;
  static constexpr std::uint8_t kKind = 5;
};

/// To a client: all whose masked inputs have arrived. With SecurePolicy::active alone.
struct AliveList {
  std::int64_t round = 0;
  std::vector<ClientId> alive;
  bool operator==(const AliveList&) const = default;
  static constexpr std::uint8_t kKind = 6;
  static auto fields_of(auto& m) { return std::tie(m.round, m.alive); }
};

/// To the server: the answer to it.
struct AliveSignature {
  std::int64_t round = 0;
  Signature signature{};  ///< Covers signed_list().
  bool operator==(const AliveSignature&) const = default;
  static constexpr std::uint8_t kKind = 7;
  static auto fields_of(auto& m) { return std::tie(m.round, m.signature); }
};

/// To a client: of which neighbours its shares are needed.
struct UnmaskRequest {
  struct Signed {
    ClientId client = 0;
    Signature signature{};
    bool operator==(const Signed&) const = default;
    static auto fields_of(auto& m) { return std::tie(m.client, m.signature); }
  };
  std::int64_t round = 0;
  std::vector<ClientId> alive;     ///< Those of the seeds.
  std::vector<ClientId> dead;      ///< Those of the masking keys.
  std::vector<Signed> signatures;  ///< The neighbours' signatures; with SecurePolicy::active.
  bool operator==(const UnmaskRequest&) const = default;
  static constexpr std::uint8_t kKind = 8;
  static auto fields_of(auto& m) { return std::tie(m.round, m.alive, m.dead, m.signatures); }
};

/// To the server: the shares, in the request's order, those of the seeds first.
struct UnmaskingShares {
  std::int64_t round = 0;
  std::vector<Share> shares;
  bool operator==(const UnmaskingShares&) const = default;
  static constexpr std::uint8_t kKind = 9;
  static auto fields_of(auto& m) { return std::tie(m.round, m.shares); }
};

/// For each message above. A byte says which one it is, integers are little-endian.
template <class Message>
std::vector<std::byte> encode(const Message& message);
/// Fails with corrupted unless the bytes are those of such a message, all of them.
template <class Message>
Result<Message> decode(ConstBytes bytes);
/// The elements are packed (ModularVector::append_packed), so that both sides must know the shapes.
std::vector<std::byte> encode(const MaskedInput& input);
Result<MaskedInput> decode_masked(ConstBytes bytes, std::span<const SegmentShape> shapes);

KeyDigest digest_of_keys(ClientId client, const PublicKey& channel, const PublicKey& masking);
/// The seed of NeighbourGraph.
Digest graph_seed(std::int64_t round, std::span<const Roster::Member> members);

/// Digest of the task of a round: the model's version and the plan, which contains a digest of the
/// model.
Digest digest_of_task(std::int64_t version, std::string_view plan);
/// Digest of everything that the clients of a round must have in common. Masks and signatures
/// depend on it: the masks of clients with different plans or models do not cancel, so that a
/// server learns nothing by giving one client another task than the others.
Digest digest_of_round(std::int64_t round, const SecurePolicy& policy,
                       std::span<const SegmentShape> shapes, const Digest& task);

/// The bytes that clients sign. `round`: of digest_of_round().
std::vector<std::byte> signed_keys(const Digest& round, ClientId client, const KeyDigest& keys);
std::vector<std::byte> signed_list(std::int64_t round, std::span<const ClientId> alive);

}  // namespace gradwire::federated
