#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/base/random.h"
#include "gradwire/federated/remote/messages.h"
#include "tests/federated/fake_server_model.h"

namespace gradwire::federated {
namespace {

std::vector<std::byte> whole(const Message& message) {
  std::vector<std::byte> bytes = message.head;
  const ConstBytes tail = message.tail.bytes();
  bytes.insert(bytes.end(), tail.begin(), tail.end());
  return bytes;
}

struct Received {
  MessageHeader header;
  Blob body;
};
Received received(const std::vector<std::byte>& bytes) {
  const auto header = decode_header(ConstBytes(bytes).first(MessageHeader::kBytes));
  EXPECT_TRUE(header);
  std::vector<std::byte> body(bytes.begin() + MessageHeader::kBytes, bytes.end());
  EXPECT_EQ(header->size, body.size());
  return {*header, Blob::of(std::move(body))};
}

std::vector<Question> questions() {
  return {CheckIn{600, 3},
          Fetch{},
          Ready{12.5},
          to_update(test::contribution_of(3, 17, 600)),
          Leave::of(LeaveReason::refuses_order),
          SecureMessage{Blob::of(encode(UnmaskingShares{.round = 5, .shares = {Share{}}}))},
          MaskedUpdate{Blob::of(std::vector<std::byte>(5, std::byte{5}))},
          Describe{}};
}
std::vector<Answer> answers() {
  return {Offer{3, 60, 1000, 10, 100, 50},
          Task{3, 2, 59.5, "{}", Blob::of(std::vector<std::byte>(9, std::byte{1}))},
          UploadOrder{17, 600, 4, 3, 1},
          NotNeeded{1},
          Wait{},
          ComeBack{30, "a round is in progress"},
          Done{2},
          Over{},
          Refusal{4, "no"},
          SecureOrder{"certificates", Blob::of(encode(AliveList{.round = 5, .alive = {1, 2}}))},
          Description{"{}"}};
}

TEST(FederatedMessages, EachKindDecodesToWhatWasEncoded) {
  std::set<std::uint16_t> kinds;
  for (const Question& question : questions()) {
    const auto bytes = whole(encode(question, 77, 5));
    const Received one = received(bytes);
    EXPECT_EQ(one.header.instance, 77u);
    EXPECT_EQ(one.header.round, 5);
    const auto decoded = decode_question(one.header, one.body);
    ASSERT_TRUE(decoded) << decoded.error().message;
    EXPECT_EQ(whole(encode(*decoded, 77, 5)), bytes);
    EXPECT_TRUE(kinds.insert(one.header.kind).second);
    EXPECT_FALSE(decode_answer(one.header, one.body));
  }
  for (const Answer& answer : answers()) {
    const auto bytes = whole(encode(answer, 5));
    const Received one = received(bytes);
    const auto decoded = decode_answer(one.header, one.body);
    ASSERT_TRUE(decoded) << decoded.error().message;
    EXPECT_EQ(whole(encode(*decoded, 5)), bytes);
    EXPECT_TRUE(kinds.insert(one.header.kind).second);
    EXPECT_FALSE(decode_question(one.header, one.body));
  }
  EXPECT_EQ(kinds.size(), std::variant_size_v<Question> + std::variant_size_v<Answer>);
}

TEST(FederatedMessages, AMessageThatIsCutOrLongerIsRefused) {
  for (const Question& question : questions()) {
    const Received one = received(whole(encode(question, 77, 5)));
    const bool is_update = std::holds_alternative<Update>(question);
    const bool ends_with_bytes = is_update || std::holds_alternative<SecureMessage>(question) ||
                                 std::holds_alternative<MaskedUpdate>(question);
    for (std::size_t size = 0; size < one.body.size; ++size) {
      const auto decoded = decode_question(one.header, {one.body.data, size});
      if (!decoded) continue;
      ASSERT_TRUE(ends_with_bytes);
      if (is_update) {
        EXPECT_FALSE(contribution_in(std::get<Update>(*decoded), test::kSmallShape, 17));
      }
    }
    std::vector<std::byte> longer(one.body.data.get(), one.body.data.get() + one.body.size);
    longer.push_back(std::byte{0});
    EXPECT_EQ(decode_question(one.header, Blob::of(longer)).has_value(), ends_with_bytes);
  }
}

TEST(FederatedMessages, RandomBytesAreRefusedOrDecode) {
  Random random(9);
  int refused = 0;
  for (int i = 0; i < 20'000; ++i) {
    const MessageHeader header{.kind = static_cast<std::uint16_t>(random.below(8))};
    std::vector<std::byte> bytes(random.below(100));
    for (std::byte& byte : bytes)
      byte = static_cast<std::byte>(random.one_in(2) ? 0 : random.below(256));
    const auto decoded = decode_question(header, Blob::of(bytes));
    refused += decoded ? 0 : 1;
    if (!decoded) {
      EXPECT_EQ(decoded.error().kind, ErrorKind::corrupted);
    }
  }
  EXPECT_GT(refused, 10'000);
}

TEST(FederatedMessages, TimesAreFiniteAndAnotherVersionIsNamed) {
  auto bytes = whole(encode(Ready{1}, 1, 1));
  for (const double wrong : {-1.0, 1e300, std::numeric_limits<double>::quiet_NaN()}) {
    store_little_endian(bytes.data() + MessageHeader::kBytes, std::bit_cast<std::uint64_t>(wrong));
    const Received one = received(bytes);
    EXPECT_FALSE(decode_question(one.header, one.body)) << wrong;
  }
  bytes[0] = std::byte{9};
  const auto header = decode_header(ConstBytes(bytes).first(MessageHeader::kBytes));
  ASSERT_FALSE(header);
  EXPECT_EQ(header.error().kind, ErrorKind::mismatch);
  EXPECT_THAT(header.error().message, testing::HasSubstr("version 9"));
}

/// No text of the client reaches the server.
TEST(FederatedMessages, AClientLeavesForOneOfAFewReasons) {
  std::set<std::string_view> texts;
  for (std::int64_t reason = -1; reason <= 9; ++reason) {
    const Received one = received(whole(encode(Question(Leave{reason}), 1, 5)));
    const auto decoded = decode_question(one.header, one.body);
    EXPECT_EQ(decoded.has_value(), reason >= 0 && reason < 9) << reason;
    if (decoded) texts.insert(text_of(static_cast<LeaveReason>(reason)));
  }
  EXPECT_EQ(texts.size(), 9U);
}

TEST(FederatedMessages, AnUploadOrderSaysHowUpdatesAreMasked) {
  EXPECT_FALSE(UploadOrder::of({.bits = 17, .weight = 600}).secure());
  const SecurePolicy policy{.neighbours = 12, .threshold = 9, .active = true};
  const auto order = UploadOrder::of({.bits = 17, .weight = 600, .secure = policy});
  EXPECT_EQ(order.bits, 17);
  EXPECT_EQ(order.weight, 600);
  ASSERT_TRUE(order.secure());
  EXPECT_EQ(order.secure()->neighbours, 12);
  EXPECT_EQ(order.secure()->threshold, 9);
  EXPECT_TRUE(order.secure()->active);
}

/// A client would need memory without end for the neighbours, and cannot have such elements.
TEST(FederatedMessages, AnUploadOrderOfImpossibleNumbersIsRefused) {
  const auto decodes = [](const UploadOrder& order) {
    const Received one = received(whole(encode(Answer(order), 5)));
    const auto decoded = decode_answer(one.header, one.body);
    if (!decoded) {
      EXPECT_EQ(decoded.error().kind, ErrorKind::corrupted);
    }
    return decoded.has_value();
  };
  EXPECT_TRUE(decodes({.bits = 64, .neighbours = 4096, .threshold = 4096, .active = 1}));
  EXPECT_TRUE(decodes({.bits = 1}));
  for (const std::int64_t bits : {0, 65, -1}) EXPECT_FALSE(decodes({.bits = bits})) << bits;
  for (const std::int64_t count : {std::int64_t{-1}, std::int64_t{4097}, std::int64_t{0x7FFFFFFF},
                                   (std::int64_t{1} << 32) + 12}) {
    EXPECT_FALSE(decodes({.bits = 17, .neighbours = count, .threshold = 3})) << count;
    EXPECT_FALSE(decodes({.bits = 17, .neighbours = 4, .threshold = count})) << count;
  }
}

TEST(FederatedMessages, AContributionComesBackAsItWas) {
  for (const int bits : {1, 7, 16, 17, 40, 64}) {
    const auto contribution = test::contribution_of(0, bits, 1);
    const auto update = to_update(contribution);
    const auto back = contribution_in(update, test::kSmallShape, bits);
    ASSERT_TRUE(back) << back.error().message;
    EXPECT_TRUE(std::ranges::equal(*back, contribution));
    EXPECT_EQ(update_bytes(test::kSmallShape, bits), 8 + 4 * 8 + update.packed.size);
    EXPECT_FALSE(contribution_in(update, test::kSmallShape, bits % 64 + 1));
  }
}

}  // namespace
}  // namespace gradwire::federated
