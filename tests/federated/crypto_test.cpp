#include "gradwire/federated/secure/crypto.h"

#include <algorithm>
#include <array>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "gradwire/federated/secure/mask.h"
#include "tests/federated/secure_trial.h"

namespace gradwire::federated {
namespace {

std::vector<std::byte> from_hex(std::string_view hex) {
  const auto digit = [](char c) { return c <= '9' ? c - '0' : c - 'a' + 10; };
  std::vector<std::byte> bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2)
    bytes.push_back(static_cast<std::byte>(16 * digit(hex[i]) + digit(hex[i + 1])));
  return bytes;
}

template <std::size_t size>
std::array<std::byte, size> array_of(std::string_view hex) {
  std::array<std::byte, size> bytes{};
  EXPECT_EQ(hex.size(), 2 * size);
  std::ranges::copy(from_hex(hex), bytes.begin());
  return bytes;
}

Secret secret_of(std::string_view hex) {
  return Secret(array_of<32>(hex));
}

std::vector<std::byte> copy_of(ConstBytes bytes) {
  return {bytes.begin(), bytes.end()};
}

TEST(Crypto, AgreesAsRfc7748) {  // Section 6.1.
  const auto alice = AgreementKey::of(
      secret_of("77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a"));
  const auto bob = AgreementKey::of(
      secret_of("5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb"));
  ASSERT_TRUE(alice && bob);
  EXPECT_EQ(alice->shared(),
            array_of<32>("8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a"));
  EXPECT_EQ(bob->shared(),
            array_of<32>("de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f"));
  const Secret common =
      secret_of("4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742");
  EXPECT_EQ(alice->agree(bob->shared()).value(), common);
  EXPECT_EQ(bob->agree(alice->shared()).value(), common);
}

TEST(Crypto, RefusesKeysOfSmallOrder) {
  const auto key = AgreementKey::of(Secret::draw(test::seeded_bytes(1)).value());
  PublicKey zero{}, one{};
  one[0] = std::byte{1};
  EXPECT_EQ(key->agree(zero).error().kind, ErrorKind::refused);
  EXPECT_EQ(key->agree(one).error().kind, ErrorKind::refused);
}

TEST(Crypto, SignsAsRfc8032) {  // Section 7.1, test 1.
  const Secret secret =
      secret_of("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60");
  const PublicKey key = ed25519_public(secret).value();
  EXPECT_EQ(key, array_of<32>("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"));
  Signature signature = ed25519_sign(secret, {}).value();
  EXPECT_EQ(signature,
            array_of<64>("e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e06522490155"
                         "5fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b"));
  EXPECT_TRUE(ed25519_verifies(key, {}, signature));
  EXPECT_FALSE(ed25519_verifies(key, from_hex("00"), signature));
  signature[63] ^= std::byte{1};
  EXPECT_FALSE(ed25519_verifies(key, {}, signature));
}

TEST(Crypto, DerivesAsRfc5869) {  // Appendix A, tests 1 and 3.
  std::vector<std::byte> output(42);
  const std::vector<std::byte> key(22, std::byte{0x0b});
  ASSERT_TRUE(hkdf_sha256(key, from_hex("000102030405060708090a0b0c"),
                          from_hex("f0f1f2f3f4f5f6f7f8f9"), output)
                  .has_value());
  EXPECT_EQ(output, from_hex("3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf"
                             "34007208d5b887185865"));
  ASSERT_TRUE(hkdf_sha256(key, {}, {}, output).has_value());
  EXPECT_EQ(output, from_hex("8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d"
                             "9d201395faa4b61a96c8"));
}

TEST(Crypto, HashesAsFips180) {
  EXPECT_EQ(sha256(from_hex("616263")),
            array_of<32>("ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"));
}

TEST(Crypto, StreamsKeysAsSp80038a) {  // F.5.5, CTR-AES256.
  const Secret key = secret_of("603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4");
  const auto plain = from_hex(
      "6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e51"
      "30c81c46a35ce411e5fbc1191a0a52eff69f2445df4f9b17ad2b417be66c3710");
  const auto sealed = from_hex(
      "601ec313775789a5b7a7f504bbf3d228f443e3ca4d62b59aca84e990cacaf5c5"
      "2b0930daa23de94ce87017ba2d84988ddfc9c58db67aada613c2dd08457941a6");
  KeyStream stream;
  std::vector<std::byte> bytes(64);
  ASSERT_TRUE(stream.start(key, array_of<16>("f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff")).has_value());
  ASSERT_TRUE(stream.fill(Bytes(bytes).first(5)).has_value());
  ASSERT_TRUE(stream.fill(Bytes(bytes).subspan(5)).has_value());
  for (std::size_t i = 0; i < 64; ++i) EXPECT_EQ(bytes[i] ^ plain[i], sealed[i]) << i;
}

TEST(Crypto, StreamsFromAnyBlock) {
  const Secret key = Secret::draw(test::seeded_bytes(1)).value();
  KeyStream stream;
  std::vector<std::byte> all(100'000), part(1000);
  ASSERT_TRUE(stream.start_at_block(key, 0).has_value() && stream.fill(all).has_value());
  ASSERT_TRUE(stream.start_at_block(key, 300).has_value() && stream.fill(part).has_value());
  EXPECT_EQ(part, copy_of(ConstBytes(all).subspan(4800, 1000)));
}

TEST(Crypto, SealsAsSp80038d) {  // Test case 16 of the GCM specification.
  const Secret key = secret_of("feffe9928665731c6d6a8f9467308308feffe9928665731c6d6a8f9467308308");
  const auto plain = from_hex(
      "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72"
      "1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b39");
  const auto associated = from_hex("feedfacedeadbeeffeedfacedeadbeefabaddad2");
  const auto nonce = array_of<12>("cafebabefacedbaddecaf888");
  auto sealed = seal(key, nonce, associated, plain).value();
  EXPECT_EQ(sealed, from_hex("522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa"
                             "8cb08e48590dbb3da7b08b1056828838c5f61e6393ba7a0abcc9f662"
                             "76fc6ece0f4e1768cddf8853bb2d551b"));
  EXPECT_EQ(open(key, nonce, associated, sealed).value(), plain);
}

TEST(Crypto, OpensNothingThatWasAltered) {
  const Secret key = Secret::draw(test::seeded_bytes(1)).value();
  const auto associated = from_hex("0102"), plain = from_hex("0304050607");
  const auto sealed = seal(key, {}, associated, plain).value();
  for (std::size_t i = 0; i < sealed.size(); ++i) {
    auto altered = sealed;
    altered[i] ^= std::byte{0x10};
    EXPECT_EQ(open(key, {}, associated, altered).error().kind, ErrorKind::refused) << i;
  }
  EXPECT_FALSE(open(key, {}, from_hex("0103"), sealed).has_value());
  EXPECT_FALSE(open(key, {}, associated, from_hex("0304")).has_value());
}

TEST(Crypto, DrawsFromTheSystem) {
  const Secret a = Secret::draw(system_random_bytes).value();
  const Secret b = Secret::draw(system_random_bytes).value();
  EXPECT_FALSE(a == b || a == Secret());
}

ModularVector masked_by(const Secret& secret, std::uint8_t round, std::size_t segment = 0) {
  std::vector<ModularVector> segments(segment + 1, ModularVector(32, 16));
  const std::vector<Mask> masks{{.secret = secret}};
  EXPECT_TRUE(add_masks(masks, {std::byte{round}}, segments).has_value());
  return segments[segment];
}

std::vector<std::byte> packed(const ModularVector& vector) {
  std::vector<std::byte> bytes;
  vector.append_packed(bytes);
  return bytes;
}

/// flwrlabs/flower#7522: seeds folded to 32 bits, which these all have in common.
TEST(Mask, DependsOnAllBitsOfTheSeedAndOnRoundAndSegment) {
  std::set<std::vector<std::byte>> masks;
  const Secret secret = Secret::draw(test::seeded_bytes(1)).value();
  masks.insert(packed(masked_by(secret, 1)));
  for (std::size_t bit = 0; bit < 224; ++bit) {
    Secret other = secret;
    const std::byte flipped{static_cast<unsigned char>(1u << bit % 8)};
    other.bytes()[bit / 8] ^= flipped;
    other.bytes()[bit / 8 + 4] ^= flipped;
    masks.insert(packed(masked_by(other, 1)));
  }
  masks.insert(packed(masked_by(secret, 2)));
  masks.insert(packed(masked_by(secret, 1, 1)));
  EXPECT_EQ(masks.size(), 1 + 224 + 2);
}

TEST(Mask, IsTheKeyStreamAsLittleEndianWords) {
  const Secret secret = Secret::draw(test::seeded_bytes(1)).value();
  std::vector<std::byte> info = from_hex("6d61736b05" + std::string(2 * 39, '0'));
  KeyStream stream;
  std::vector<std::byte> bytes(400'000);
  ASSERT_TRUE(stream.start_at_block(derive(secret, info).value(), 0).has_value());
  ASSERT_TRUE(stream.fill(bytes).has_value());
  for (const int bits : {16, 32, 64}) {
    const auto word_bytes = static_cast<std::size_t>(bits / 8);
    std::vector<ModularVector> segments{ModularVector(bytes.size() / word_bytes, bits)};
    const std::vector<Mask> masks{{.secret = secret}};
    ASSERT_TRUE(add_masks(masks, {std::byte{5}}, segments, 2).has_value());
    EXPECT_EQ(packed(segments[0]), bytes) << bits;
  }
}

TEST(Mask, CancelsWithItsNegative) {
  const Secret secret = Secret::draw(test::seeded_bytes(1)).value();
  for (const int bits : {5, 16, 17, 32, 40, 64}) {
    std::vector<ModularVector> segments{ModularVector(70'001, bits)};
    const std::vector<Mask> one{{.secret = secret}};
    ASSERT_TRUE(add_masks(one, {std::byte{5}}, segments).has_value());
    EXPECT_FALSE(segments[0] == ModularVector(70'001, bits));
    const std::vector<Mask> other{{.secret = secret, .is_negative = true}};
    ASSERT_TRUE(add_masks(other, {std::byte{5}}, segments).has_value());
    EXPECT_EQ(segments[0], ModularVector(70'001, bits)) << bits;
  }
}

TEST(OnThreads, CallsEachOnceAndReturnsAnError) {
  for (const int threads : {1, 3, 8}) {
    std::vector<int> calls(100);
    EXPECT_TRUE(on_threads(threads, calls.size(), [&](std::size_t i) -> Status {
                  ++calls[i];
                  return {};
                }).has_value());
    EXPECT_EQ(calls, std::vector<int>(100, 1));
    const Status status = on_threads(threads, 100, [](std::size_t i) -> Status {
      if (i == 7) return failure(ErrorKind::system, "the seventh");
      return {};
    });
    ASSERT_FALSE(status.has_value());
    EXPECT_EQ(status.error().message, "the seventh");
  }
}

}  // namespace
}  // namespace gradwire::federated
