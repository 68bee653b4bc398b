#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/base/log.h"
#include "tests/federated/secure_companion.h"
#include "tests/support/error_of.h"

namespace gradwire::federated {
namespace {

using gradwire::test::SecureCompanion;
using gradwire::test::SecureDesk;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr SecurePolicy kFourNeighbours{.neighbours = 4, .threshold = 3};

/// The coordinator's first `count` clients.
std::vector<SecureCompanion> companions_of(SecureDesk& desk, std::size_t count) {
  std::vector<SecureCompanion> all;
  for (std::size_t i = 0; i < count; ++i) all.emplace_back(desk, desk.identities[i]);
  return all;
}

/// Until all wait, or are done.
void all_go_on(std::vector<SecureCompanion>& all, std::string_view last = "") {
  for (int turn = 0; turn < 20; ++turn)
    for (SecureCompanion& one : all) one.go_on(last);
}

std::vector<std::byte> bytes_of_answer(const std::optional<Answer>& answer) {
  Message message = encode(answer.value(), 0);
  const ConstBytes tail = message.tail.bytes();
  message.head.insert(message.head.end(), tail.begin(), tail.end());
  return message.head;
}

std::string refusal_in(const std::optional<Answer>& answer) {
  const auto* refusal = answer ? std::get_if<Refusal>(&*answer) : nullptr;
  return refusal != nullptr ? refusal->reason : "no refusal";
}

class SecureCoordinatorRounds : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Active, SecureCoordinatorRounds, testing::Bool());

TEST_P(SecureCoordinatorRounds, EachQuestionTwiceGivesThePlainSumOnce) {
  SecurePolicy policy = kFourNeighbours;
  policy.active = GetParam();
  SecureDesk desk(5, policy);
  auto all = companions_of(desk, 5);
  int orders = 0;
  for (int turn = 0; turn < 20; ++turn) {
    for (SecureCompanion& one : all) {
      if (one.is_done()) continue;
      const auto first = one.ask(), second = one.ask();
      if (!first) continue;
      ASSERT_TRUE(second);
      EXPECT_EQ(first->index(), second->index());
      if (std::holds_alternative<SecureOrder>(*first)) {
        ++orders;
        EXPECT_EQ(bytes_of_answer(first), bytes_of_answer(second));
      }
      one.take(*first);
    }
  }
  EXPECT_EQ(orders, 5 * (policy.active ? 4 : 3));
  ASSERT_TRUE(desk.coordinator->has_ended());
  const EndedRound ended = desk.coordinator->ended();
  ASSERT_NE(ended.sum, nullptr) << ended.record.reason;
  Contribution plain = test::contribution_of(0, (*ended.sum)[0].bits(), 10);
  for (ClientId id = 1; id < 5; ++id) {
    const Contribution other = test::contribution_of(id, plain[0].bits(), 10);
    for (std::size_t i = 0; i < plain.size(); ++i) plain[i] += other[i];
  }
  EXPECT_EQ(*ended.sum, plain);
  EXPECT_EQ(ended.weight, 50);
  EXPECT_TRUE(std::ranges::all_of(all, &SecureCompanion::counts));
}

TEST_P(SecureCoordinatorRounds, WhoVanishesBeforeAnyMessageDoesNotHoldTheOthers) {
  const bool active = GetParam();
  for (const std::string_view last :
       {"keys", "shares", "masked update", "signature", "unmasking"}) {
    if (last == "signature" && !active) continue;
    SecureDesk desk(7, {.neighbours = 6, .threshold = active ? 5 : 4, .active = active});
    auto all = companions_of(desk, 7);
    auto rest =
        std::vector(std::make_move_iterator(all.begin() + 1), std::make_move_iterator(all.end()));
    for (int turn = 0; turn < 20; ++turn) {
      all[0].go_on(last);
      for (SecureCompanion& one : rest) one.go_on();
    }
    ASSERT_FALSE(desk.coordinator->has_ended()) << last;
    desk.now = desk.coordinator->deadline();
    desk.coordinator->on_time(desk.now);
    all_go_on(rest);
    ASSERT_TRUE(desk.coordinator->has_ended()) << last;
    const EndedRound ended = desk.coordinator->ended();
    ASSERT_NE(ended.sum, nullptr) << last << ": " << ended.record.reason;
    const bool counts = last == "signature" || last == "unmasking";
    EXPECT_EQ(ended.counted.size(), counts ? 7u : 6u) << last;
    EXPECT_EQ((*ended.sum)[0][0], 10u * (counts ? 28 : 27)) << last;
    EXPECT_TRUE(std::holds_alternative<NotNeeded>(all[0].ask().value())) << last;
  }
}

TEST(SecureCoordinator, ARoundWithTooFewLeftTellsThoseThatWait) {
  SecureDesk desk(5, {.neighbours = 4, .threshold = 4});
  auto all = companions_of(desk, 5);
  all_go_on(all, "masked update");
  for (std::size_t i = 1; i < 5; ++i) all[i].go_on();
  desk.now = desk.coordinator->deadline();
  desk.coordinator->on_time(desk.now);
  EXPECT_TRUE(desk.coordinator->ended().record.is_abandoned);
  EXPECT_THAT(desk.coordinator->take_answerable(), testing::IsSupersetOf({1, 2, 3, 4}));
  all_go_on(all);
  for (const SecureCompanion& one : all) EXPECT_TRUE(one.is_done() && !one.counts());
}

TEST(SecureCoordinator, AWrongMessageIsRefusedAndTheRightOneCounts) {
  std::vector<std::string> log;
  set_log_sink([&](std::string_view line) { log.emplace_back(line); });
  SecureDesk desk(5, kFourNeighbours);
  auto all = companions_of(desk, 5);
  all_go_on(all, "shares");
  const auto ask = [&](const Question& question, std::int64_t round = 1) {
    return desk.coordinator->reply(0, 1, round, question, desk.now);
  };
  const auto secure = [](const auto& message) { return SecureMessage{Blob::of(encode(message))}; };
  EXPECT_THAT(refusal_in(ask(SecureMessage{})), HasSubstr("no message of secure aggregation"));
  EXPECT_THAT(refusal_in(ask(secure(SealedShares{.round = 1, .shares = {}}))),
              HasSubstr("it has shares for 0 neighbours, not for 4"));
  EXPECT_THAT(refusal_in(ask(secure(SealedShares{.round = 0, .shares = {}}))),
              HasSubstr("it is of round 0"));
  EXPECT_THAT(refusal_in(ask(secure(UnmaskingShares{.round = 1, .shares = {}}))),
              HasSubstr("it is of phase unmasking and comes in phase shares"));
  EXPECT_THAT(refusal_in(ask(MaskedUpdate{})), HasSubstr("does not await its masked update"));
  EXPECT_THAT(refusal_in(ask(to_update(test::contribution_of(0, 22, 10)))),
              HasSubstr("does not await its update"));
  EXPECT_TRUE(std::holds_alternative<NotNeeded>(ask(secure(UnmaskingShares{}), 7).value()));
  all_go_on(all);
  EXPECT_THAT(desk.coordinator->ended().counted, ElementsAre(0, 1, 2, 3, 4));
  set_log_sink({});
  for (const std::string& line : log) EXPECT_THAT(line, HasSubstr("client 0 (phone)"));
}

TEST(SecureCoordinator, APlainUpdateIsNotTaken) {
  SecureDesk desk(5, kFourNeighbours);
  auto all = companions_of(desk, 5);
  all_go_on(all, "keys");
  const MessageHeader header{.kind = static_cast<std::uint16_t>(Question(Update{}).index()),
                             .round = 1};
  EXPECT_EQ(desk.coordinator->limit_of(0, header), 0u);
  const auto update = to_update(test::contribution_of(0, 22, 10));
  EXPECT_THAT(refusal_in(desk.coordinator->reply(0, 1, 1, update, desk.now)),
              HasSubstr("takes masked updates"));
}

TEST(SecureCoordinator, MoreNeighboursThanAMessageHasAreRefusedBeforehand) {
  const auto error = [](int use) {
    return gradwire::test::error_of([&] {
      test::FakeServerModel model;
      Coordinator::Options options{.policy = {.ask = use, .use = use, .least = 2}};
      options.max_samples = 1;
      options.policy.secure = SecureRound{.policy = {.neighbours = use - 1, .threshold = use - 1}};
      Coordinator(options, model, [](ClientId) { return ""; });
    });
  };
  EXPECT_EQ(error(3'000), "no error");
  EXPECT_THAT(error(4'000), HasSubstr("4000 clients with 3999 neighbours each exchange messages"));
}

TEST(SecureCoordinator, QuestionsAreKeptAsLongAsTheyMayBe) {
  SecureDesk desk(5, kFourNeighbours);
  auto all = companions_of(desk, 5);
  const MessageHeader small{.kind = static_cast<std::uint16_t>(Question(SecureMessage{}).index()),
                            .round = 1};
  const MessageHeader large{.kind = static_cast<std::uint16_t>(Question(MaskedUpdate{}).index()),
                            .round = 1};
  const auto size = [&](const SecureCompanion& one) {
    const Message message = encode(one.question(), 1, 1);
    return message.head.size() + message.tail.size - MessageHeader::kBytes;
  };
  const std::size_t longest = desk.coordinator->limit_of(0, small);
  EXPECT_LT(longest, 1000u);
  for (const std::string_view last : {"keys", "shares"}) {
    all_go_on(all, last);
    EXPECT_LE(size(all[0]), longest) << last;
    EXPECT_EQ(desk.coordinator->limit_of(0, large), 0u) << last;
  }
  all_go_on(all, "masked update");
  EXPECT_EQ(desk.coordinator->limit_of(0, large), size(all[0]));
  all[0].go_on();
  EXPECT_EQ(desk.coordinator->limit_of(0, large), 0u) << "the server has it";
  all_go_on(all, "unmasking");
  EXPECT_LE(size(all[0]), longest);
}

}  // namespace
}  // namespace gradwire::federated
