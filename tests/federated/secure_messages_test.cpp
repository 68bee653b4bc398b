#include "gradwire/federated/secure/secure_messages.h"

#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "tests/federated/secure_trial.h"

namespace gradwire::federated {
namespace {

template <class Message>
void expect_carried(const Message& message) {
  const std::vector<std::byte> bytes = encode(message);
  const auto read = decode<Message>(bytes);
  ASSERT_TRUE(read.has_value()) << read.error().message;
  EXPECT_EQ(*read, message);
  std::vector<std::byte> other = bytes;
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    const auto cut = decode<Message>(ConstBytes(bytes).first(size));
    ASSERT_FALSE(cut.has_value()) << size << " of " << bytes.size() << " bytes";
    EXPECT_EQ(cut.error().kind, ErrorKind::corrupted);
  }
  other.push_back(std::byte{0});
  EXPECT_FALSE(decode<Message>(other).has_value());
  other.pop_back();
  other[0] ^= std::byte{64};
  EXPECT_FALSE(decode<Message>(other).has_value());
}

template <std::size_t size>
std::array<std::byte, size> drawn(std::uint64_t seed) {
  std::array<std::byte, size> bytes;
  EXPECT_TRUE(test::seeded_bytes(seed)(bytes).has_value());
  return bytes;
}

TEST(SecureMessages, SurviveTheirEncodingAndNoOther) {
  const Signature signature = drawn<64>(1);
  expect_carried(KeyAdvert{-1, drawn<32>(2), drawn<32>(3), drawn<32>(4), {}});
  expect_carried(KeyAdvert{5, drawn<32>(2), drawn<32>(3), drawn<32>(4), signature});
  expect_carried(Roster{6,
                        {{3, drawn<16>(5)}, {-4, drawn<16>(6)}},
                        {{7, drawn<32>(7), drawn<32>(8), signature}, {8, {}, {}, {}}}});
  expect_carried(SealedShares{7, {drawn<82>(9), drawn<82>(10)}});
  expect_carried(SealedShares{});
  expect_carried(ForwardedShares{8, {{9, drawn<82>(11)}}});
  expect_carried(AliveList{9, {1, 2, 70'000}});
  expect_carried(AliveSignature{10, signature});
  expect_carried(UnmaskRequest{11, {1, 2}, {3}, {{4, signature}}});
  expect_carried(UnmaskingShares{12, {drawn<33>(12), drawn<33>(13)}});
}

TEST(SecureMessages, AreBoundedByTheirBytes) {
  std::vector<std::byte> bytes = encode(AliveList{9, {1, 2}});
  for (std::size_t i = 9; i < 13; ++i) bytes[i] = std::byte{0xFF};  // 2^32 - 1 clients.
  EXPECT_FALSE(decode<AliveList>(bytes).has_value());
  std::vector<std::byte> advert = encode(KeyAdvert{});
  advert.back() = std::byte{2};  // Neither with nor without a signature.
  EXPECT_FALSE(decode<KeyAdvert>(advert).has_value());
}

TEST(SecureMessages, MaskedInputsHaveTheirShapesAlone) {
  MaskedInput input{.round = 4, .segments = {ModularVector(3, 11), ModularVector(2, 64)}};
  input.segments[0].set(2, 2000);
  input.segments[1].set(0, ~std::uint64_t{0});
  const std::vector<SegmentShape> shapes = shapes_of(input.segments);
  const std::vector<std::byte> bytes = encode(input);
  EXPECT_EQ(bytes.size(), 1 + 8 + 5 + 16);
  EXPECT_EQ(decode_masked(bytes, shapes).value(), input);
  for (std::size_t size = 0; size < bytes.size(); ++size)
    EXPECT_FALSE(decode_masked(ConstBytes(bytes).first(size), shapes).has_value()) << size;
  std::vector<std::byte> longer = bytes;
  longer.push_back(std::byte{0});
  EXPECT_FALSE(decode_masked(longer, shapes).has_value());
  const std::vector<SegmentShape> others{{3, 11}, {2, 63}, {2, 1}};
  EXPECT_FALSE(decode_masked(bytes, others).has_value());
}

TEST(SecureMessages, AreSignedForTheirRoundAndClients) {
  const KeyDigest keys = digest_of_keys(3, drawn<32>(1), drawn<32>(2));
  EXPECT_NE(keys, digest_of_keys(4, drawn<32>(1), drawn<32>(2)));
  EXPECT_NE(keys, digest_of_keys(3, drawn<32>(2), drawn<32>(1)));
  EXPECT_NE(signed_keys(drawn<32>(1), 3, keys), signed_keys(drawn<32>(2), 3, keys));
  EXPECT_NE(signed_keys(drawn<32>(1), 3, keys), signed_keys(drawn<32>(1), 4, keys));
  const std::vector<ClientId> one{1, 2}, other{1, 3};
  EXPECT_NE(signed_list(1, one), signed_list(2, one));
  EXPECT_NE(signed_list(1, one), signed_list(1, other));
  const std::vector<Roster::Member> members{{3, keys}};
  EXPECT_NE(graph_seed(1, members), graph_seed(2, members));
  EXPECT_NE(graph_seed(1, members), graph_seed(1, {}));
}

TEST(SecureMessages, TheDigestOfARoundHasAllThatIsTheSameForItsClients) {
  const SecurePolicy policy{.neighbours = 4, .threshold = 3};
  const std::vector<SegmentShape> shapes{{5, 16}, {2, 64}};
  std::set<Digest> digests{digest_of_round(1, policy, shapes, digest_of_task(1, "{}"))};
  digests.insert(digest_of_round(2, policy, shapes, digest_of_task(1, "{}")));
  digests.insert(digest_of_round(1, policy, shapes, digest_of_task(2, "{}")));
  digests.insert(digest_of_round(1, policy, shapes, digest_of_task(1, "{ }")));
  for (const SecurePolicy& other :
       {SecurePolicy{5, 3, false}, SecurePolicy{4, 4, false}, SecurePolicy{4, 3, true}})
    digests.insert(digest_of_round(1, other, shapes, digest_of_task(1, "{}")));
  for (const std::vector<SegmentShape>& other :
       {std::vector<SegmentShape>{{6, 16}, {2, 64}}, {{5, 17}, {2, 64}}, {{5, 16}}})
    digests.insert(digest_of_round(1, policy, other, digest_of_task(1, "{}")));
  EXPECT_EQ(digests.size(), 1 + 3 + 3 + 3);
}

}  // namespace
}  // namespace gradwire::federated
