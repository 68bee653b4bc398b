// Encrypted streams between transports, with an attacker on the wire.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/net/wire.h"
#include "tests/support/host.h"
#include "tests/support/transport_pair.h"

namespace gradwire::net {
namespace {

using test::Data;
using test::PollingPair;
using test::Wire;
using testing::AllOf;
using testing::HasSubstr;

constexpr std::size_t kRecord = 16 * 1024;

Connections end_of(Wire& wire, Rank rank, bool encrypted) {
  std::vector<Socket> rails;
  rails.push_back(rank == 0 ? wire.take_first() : wire.take_second());
  return test::connections_of(rank, std::move(rails), encrypted);
}

std::unique_ptr<PollingPair> pair_over(Wire& wire, bool encrypted) {
  test::Opened opened = test::open_both(end_of(wire, 0, encrypted), end_of(wire, 1, encrypted));
  for (const auto& each : opened) EXPECT_TRUE(each) << each.error().message;
  return std::make_unique<PollingPair>(std::move(*opened[0]), std::move(*opened[1]));
}

void write_all(PollingPair& pair, Rank from, ConstBytes data) {
  while (!data.empty()) {
    const auto taken = pair.of(from).write({1 - from, 0}, std::span(&data, 1));
    ASSERT_TRUE(taken) << taken.error().message;
    data = data.subspan(*taken);
    if (!data.empty()) {
      ASSERT_FALSE(pair.wait(from).empty());
    }
  }
}

struct Received {
  Data data;
  Error error;
};

/// Reads until `size` bytes have arrived, or an error occurs.
Received read(PollingPair& pair, Rank to, std::size_t size) {
  Received received;
  while (received.data.size() < size) {
    Data buffer(size - received.data.size());
    const Bytes piece(buffer);
    const auto count = pair.of(to).read({1 - to, 0}, std::span(&piece, 1));
    if (!count) {
      received.error = count.error();
      return received;
    }
    const auto end = buffer.begin() + static_cast<std::ptrdiff_t>(*count);
    received.data.insert(received.data.end(), buffer.begin(), end);
    if (*count == 0 && pair.wait(to).empty()) break;
  }
  return received;
}

/// Bytes of a tensor that an eavesdropper would recognize.
Data tensor(std::size_t floats) {
  Data bytes(floats * sizeof(float));
  for (std::size_t i = 0; i < floats; ++i) {
    const auto value = static_cast<float>(i) * 0.5f;
    std::memcpy(&bytes[i * sizeof value], &value, sizeof value);
  }
  return bytes;
}

TEST(Encryption, HidesWhatIsSentAndNothingElseDoes) {
  for (const bool encrypted : {false, true}) {
    Wire wire;
    const auto pair = pair_over(wire, encrypted);
    const Data sent = tensor(50'000);
    write_all(*pair, 0, sent);
    EXPECT_TRUE(read(*pair, 1, sent.size()).data == sent);
    EXPECT_GE(wire.seen_bytes(), sent.size());
    const std::string_view part(reinterpret_cast<const char*>(sent.data()) + 4000, 32);
    EXPECT_EQ(wire.has_seen(part), !encrypted);
  }
}

TEST(Encryption, AChangedBitIsAnErrorAtBothEnds) {
  Wire wire;
  const auto pair = pair_over(wire, true);
  bool changed = false;
  wire.change([&](int from, std::string& bytes) {
    if (from == 0 && bytes.size() > 2 * kRecord && !std::exchange(changed, true)) {
      bytes[kRecord + 1000] = static_cast<char>(bytes[kRecord + 1000] ^ 0x10);
    }
  });
  const Data sent = tensor(50'000);
  write_all(*pair, 0, sent);
  const Received received = read(*pair, 1, sent.size());
  EXPECT_EQ(received.error.kind, ErrorKind::corrupted);
  EXPECT_THAT(received.error.message,
              AllOf(HasSubstr("rank 0"), HasSubstr("was disturbed"), HasSubstr("changes bytes")));
  EXPECT_LT(received.data.size(), sent.size());
  EXPECT_TRUE(std::equal(received.data.begin(), received.data.end(), sent.begin()));
  const Received answer = read(*pair, 0, 1);
  EXPECT_EQ(answer.error.kind, ErrorKind::corrupted) << answer.error.message;
  EXPECT_THAT(answer.error.message, HasSubstr("rank 1"));
}

TEST(Encryption, AnotherKeyIsRefusedAndNamed) {
  Wire wire;
  Connections other = end_of(wire, 1, true);
  other.keys[0][0] = test::key_of_rail(7);
  const test::Opened opened = test::open_both(end_of(wire, 0, true), std::move(other));
  for (const Rank rank : {0, 1}) {
    const auto& each = opened[static_cast<std::size_t>(rank)];
    ASSERT_FALSE(each);
    EXPECT_EQ(each.error().kind, ErrorKind::refused) << each.error().message;
    EXPECT_THAT(each.error().message,
                AllOf(HasSubstr("cannot encrypt"), HasSubstr(rank == 0 ? "rank 1" : "rank 0")));
  }
}

TEST(Encryption, AStalledPeerIsNamed) {
  Wire wire;
  const Connections silent = end_of(wire, 1, false);
  const auto opened = open_transport(end_of(wire, 0, true), {},
                                     Deadline::after(test::kClock, std::chrono::milliseconds(50)));
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().kind, ErrorKind::timeout);
  EXPECT_THAT(opened.error().message, HasSubstr("rank 1"));
}

}  // namespace
}  // namespace gradwire::net
