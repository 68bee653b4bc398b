#include "gradwire/federated/remote/coordinator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/base/clock.h"
#include "gradwire/base/log.h"
#include "tests/federated/fake_server_model.h"
#include "tests/support/error_of.h"

namespace gradwire::federated {
namespace {

using gradwire::test::error_of;
using test::contribution_of;
using test::FakeServerModel;
using testing::ElementsAre;
using testing::HasSubstr;

/// Clients that ask a coordinator, in virtual time.
struct Desk {
  explicit Desk(const RoundPolicy& policy, Coordinator::Options options = {}) {
    options.policy = policy;
    options.least_pause = std::chrono::milliseconds(10);
    coordinator.emplace(options, model, [](ClientId id) { return fmt::format("phone-{}", id); });
    set_log_sink([this](std::string_view line) { log.emplace_back(line); });
    coordinator->begin_round(now);
  }
  ~Desk() { set_log_sink({}); }

  std::optional<Answer> ask(ClientId id, const Question& question, std::int64_t round = 1,
                            std::uint64_t instance = 1) {
    return coordinator->reply(id, instance, round, question, now);
  }
  template <class Kind>
  Kind expect(ClientId id, const Question& question, std::int64_t round = 1) {
    const auto answer = ask(id, question, round);
    EXPECT_TRUE(answer && std::holds_alternative<Kind>(*answer))
        << id << " got " << (answer ? static_cast<int>(answer->index()) : -1);
    return answer && std::holds_alternative<Kind>(*answer) ? std::get<Kind>(*answer) : Kind{};
  }
  bool waits(ClientId id, const Question& question, std::int64_t round = 1) {
    return !ask(id, question, round);
  }
  Update update(ClientId id, const UploadOrder& order) {
    return to_update(contribution_of(id, order.bits, order.weight));
  }
  void next_round() {
    model.on_ended(coordinator->ended());
    coordinator->begin_round(now);
  }
  /// Clients 0 .. n - 1 check in until they are asked.
  void ask_all(int clients, std::int64_t round = 1) {
    for (ClientId id = 0; id < clients; ++id) ask(id, CheckIn{10 * (id + 1), -1});
    for (ClientId id = 0; id < clients; ++id) expect<Offer>(id, CheckIn{10 * (id + 1), -1}, round);
  }

  FakeServerModel model;
  Time now{std::chrono::hours(1)};
  std::vector<std::string> log;
  std::optional<Coordinator> coordinator;
};

constexpr RoundPolicy kTwo{.ask = 2, .use = 2, .least = 2, .update_bits = 16};

TEST(Coordinator, ARoundFromCheckInToSum) {
  Desk desk(kTwo);
  EXPECT_TRUE(desk.waits(0, CheckIn{10, -1}));
  const auto offer = desk.expect<Offer>(1, CheckIn{20, -1});
  EXPECT_EQ(offer.steps, 2);
  EXPECT_EQ(offer.memory_bytes, 1000);
  EXPECT_EQ(offer.down_bytes, 113);
  EXPECT_EQ(offer.seconds, 57);  // The window is 60, with the way of its answer.
  EXPECT_THAT(desk.coordinator->take_answerable(), testing::Contains(0));
  for (const ClientId id : {0, 1}) {
    desk.expect<Offer>(id, CheckIn{10, -1});
    const auto task = desk.expect<Task>(id, Fetch{});
    EXPECT_EQ(task.model.size, 100u);
    EXPECT_EQ(task.base_version, -1);
    desk.coordinator->on_task_sent(id, desk.now);
  }
  desk.now += std::chrono::seconds(3);
  EXPECT_TRUE(desk.waits(1, Ready{2}));
  const auto first = desk.expect<UploadOrder>(0, Ready{99});
  const auto second = desk.expect<UploadOrder>(1, Ready{2});
  EXPECT_EQ(first.bits, 16 + 5);
  EXPECT_LE(static_cast<std::int64_t>(8 + 2 * 16 + 5 * 21 / 8 + 1 + 16), offer.up_bytes);
  desk.expect<Done>(0, desk.update(0, first));
  EXPECT_FALSE(desk.coordinator->has_ended());
  desk.expect<Done>(1, desk.update(1, second));
  ASSERT_TRUE(desk.coordinator->has_ended());
  const EndedRound ended = desk.coordinator->ended();
  EXPECT_EQ(ended.weight, 30);
  EXPECT_EQ((*ended.sum)[0][0], 1u * 10 + 2u * 20);
  EXPECT_THAT(ended.counted, ElementsAre(0, 1));
  EXPECT_EQ(ended.ledger.at(0).compute_seconds, 3) << "no more than the time since the order";
  EXPECT_EQ(ended.ledger.at(1).compute_seconds, 2);
  EXPECT_EQ(ended.ledger.at(1).counted, 1);
  EXPECT_EQ(ended.ledger.at(1).eligible, 1);
}

TEST(Coordinator, TheSameQuestionHasTheSameAnswerAndCountsOnce) {
  Desk desk(kTwo);
  EXPECT_TRUE(desk.waits(0, CheckIn{10, -1}));
  EXPECT_TRUE(desk.waits(0, CheckIn{10, -1})) << "one client is not two";
  desk.ask_all(2);
  for (int again = 0; again < 3; ++again) desk.expect<Task>(0, Fetch{});
  EXPECT_TRUE(desk.waits(0, Ready{1}));
  EXPECT_TRUE(desk.waits(0, Ready{1}));
  desk.expect<UploadOrder>(1, Ready{1});
  const auto order = desk.expect<UploadOrder>(0, Ready{1});
  for (int again = 0; again < 3; ++again) desk.expect<Done>(0, desk.update(0, order));
  desk.expect<Done>(1, desk.update(1, desk.expect<UploadOrder>(1, Ready{1})));
  desk.expect<Done>(0, desk.update(0, order));
  EXPECT_EQ((*desk.coordinator->ended().sum)[0][0], 1u * 10 + 2u * 20);
}

TEST(Coordinator, AnOldRoundIsRefused) {
  Desk desk(kTwo);
  desk.ask_all(2);
  desk.ask(0, Ready{1});
  const auto order = desk.expect<UploadOrder>(1, Ready{1});
  const Update first = desk.update(0, desk.expect<UploadOrder>(0, Ready{1}));
  desk.expect<Done>(0, first);
  desk.expect<Done>(1, desk.update(1, order));
  desk.next_round();
  desk.ask_all(2, 2);
  desk.ask(0, Ready{1}, 2);
  desk.ask(1, Ready{1}, 2);
  desk.expect<Done>(0, first, 1);  // The answer of before; it does not count again.
  EXPECT_THAT(desk.expect<Refusal>(0, first, 0).reason, HasSubstr("round 0 does not await"));
  EXPECT_THAT(desk.expect<Refusal>(0, first, 7).reason, HasSubstr("round 7 does not await"));
  desk.expect<NotNeeded>(0, Ready{1}, 1);
  desk.expect<NotNeeded>(0, Fetch{}, 1);
  EXPECT_FALSE(desk.coordinator->has_ended());
  EXPECT_EQ(desk.expect<UploadOrder>(0, Ready{1}, 2).weight, 10);
}

TEST(Coordinator, UpdatesOfAnotherSizeAreRefusedAndTheRightOneCounts) {
  Desk desk(kTwo);
  desk.ask_all(2);
  desk.ask(0, Ready{1});
  desk.expect<UploadOrder>(1, Ready{1});
  const auto order = desk.expect<UploadOrder>(0, Ready{1});
  for (const UpdateShape& shape :
       {UpdateShape{4, 2}, UpdateShape{5, 3}, UpdateShape{0, 0}, UpdateShape{1000, 2}}) {
    const auto wrong = to_update(contribution_of(0, order.bits, order.weight, shape));
    EXPECT_EQ(desk.expect<Refusal>(0, wrong).kind, static_cast<int>(ErrorKind::corrupted));
  }
  desk.expect<Refusal>(0, to_update(contribution_of(0, order.bits + 1, order.weight)));
  Update short_one = desk.update(0, order);
  --short_one.packed.size;
  desk.expect<Refusal>(0, short_one);
  EXPECT_THAT(desk.log, ElementsAre(HasSubstr("client 0 (phone-0): the update is not of 5")))
      << "once";
  desk.expect<Done>(0, desk.update(0, order));
}

TEST(Coordinator, SamplesFromNoneToMillions) {
  Desk desk(kTwo);
  EXPECT_THAT(desk.expect<Refusal>(0, CheckIn{0, -1}).reason, HasSubstr("no samples"));
  EXPECT_THAT(desk.expect<Refusal>(1, CheckIn{-5, -1}).reason, HasSubstr("no samples"));
  EXPECT_THAT(desk.expect<Refusal>(2, CheckIn{std::int64_t{1} << 40, -1}).reason,
              HasSubstr("may have 16777216"));
  EXPECT_TRUE(desk.waits(3, CheckIn{1, -1}));
  desk.expect<Offer>(4, CheckIn{1'000'000, -1});
  desk.ask(3, Ready{1});
  const auto order = desk.expect<UploadOrder>(4, Ready{1});
  EXPECT_EQ(order.weight, 1'000'000);
  desk.expect<Done>(4, desk.update(4, order));
  desk.expect<Done>(3, desk.update(3, desk.expect<UploadOrder>(3, Ready{1})));
  EXPECT_EQ(desk.coordinator->ended().weight, 1'000'001);
}

TEST(Coordinator, SumsBeyond64BitsAreRefusedBeforehand) {
  const RoundPolicy many{.ask = 300, .use = 300, .least = 1, .update_bits = 32};
  EXPECT_THAT(error_of([&] { Desk desk(many); }), HasSubstr("sums of 65 bits"));
}

TEST(Coordinator, ASecondProcessWithOneIdentityIsToldUntilTheFirstIsForgotten) {
  Desk desk(kTwo);
  EXPECT_TRUE(desk.waits(0, CheckIn{10, -1}));
  const auto other = desk.ask(0, CheckIn{10, -1}, 1, 2);
  ASSERT_TRUE(other);
  EXPECT_THAT(std::get<ComeBack>(*other).reason, HasSubstr("another process uses this identity"));
  EXPECT_EQ(std::get<ComeBack>(*other).seconds, 40);
  EXPECT_THAT(desk.log, ElementsAre(HasSubstr("another process")));
  desk.now += std::chrono::seconds(41);
  EXPECT_FALSE(desk.ask(0, CheckIn{10, -1}, 1, 2));
  EXPECT_TRUE(desk.ask(0, CheckIn{10, -1}, 1, 1)) << "now the first one is told";
}

TEST(Coordinator, TheOthersAreToldToStop) {
  Desk desk({.ask = 4, .use = 2, .least = 2, .update_bits = 16});
  desk.ask_all(4);
  desk.ask(2, Ready{1});
  desk.expect<UploadOrder>(1, Ready{1});
  EXPECT_THAT(desk.coordinator->take_answerable(), testing::IsSupersetOf({0, 1, 2, 3}));
  for (const ClientId id : {0, 3}) desk.expect<NotNeeded>(id, Ready{1});
  desk.expect<NotNeeded>(3, Fetch{});
  for (const ClientId id : {1, 2})
    desk.expect<Done>(id, desk.update(id, desk.expect<UploadOrder>(id, Ready{1})));
  EXPECT_THAT(desk.coordinator->ended().counted, ElementsAre(1, 2));
  EXPECT_EQ(desk.coordinator->ended().record.stopped, 2);
}

TEST(Coordinator, TheWindowEndsAndTheReadyAreTheCohort) {
  Desk desk({.ask = 3, .use = 3, .least = 1, .update_bits = 16});
  desk.ask_all(3);
  EXPECT_TRUE(desk.waits(1, Ready{1}));
  desk.now = desk.coordinator->deadline();
  desk.coordinator->on_time(desk.now);
  const auto order = desk.expect<UploadOrder>(1, Ready{1});
  desk.expect<NotNeeded>(0, Ready{1});
  desk.expect<Done>(1, desk.update(1, order));
  EXPECT_EQ(desk.coordinator->ended().record.used, 1);
  desk.next_round();
  desk.ask_all(3, 2);
  desk.now = desk.coordinator->deadline();
  desk.coordinator->on_time(desk.now);
  EXPECT_TRUE(desk.coordinator->ended().record.is_abandoned);
  EXPECT_EQ(desk.coordinator->ended().sum, nullptr);
}

TEST(Coordinator, AClientThatIsGoneBeforeTheDrawIsNotAsked) {
  Desk desk(kTwo);
  EXPECT_TRUE(desk.waits(0, CheckIn{10, -1}));
  desk.coordinator->on_gone(0, desk.now);
  EXPECT_TRUE(desk.waits(1, CheckIn{10, -1}));
  desk.expect<Offer>(0, CheckIn{10, -1});
  // Later it may come back.
  desk.coordinator->on_gone(0, desk.now);
  desk.expect<Task>(0, Fetch{});
  EXPECT_TRUE(desk.waits(0, Ready{1}));
  desk.coordinator->on_gone(0, desk.now);
  desk.expect<UploadOrder>(1, Ready{1});
  desk.expect<UploadOrder>(0, Ready{1});
}

TEST(Coordinator, WhoLeavesOrBeginsAnewIsLostInTheRound) {
  Desk desk({.ask = 3, .use = 2, .least = 1, .update_bits = 16});
  desk.ask_all(3);
  desk.expect<Done>(0, Leave::of(LeaveReason::not_eligible));
  EXPECT_TRUE(desk.waits(1, Ready{1}));
  desk.expect<ComeBack>(1, CheckIn{20, -1});
  const auto order = desk.expect<UploadOrder>(2, Ready{1});
  desk.expect<Done>(2, desk.update(2, order));
  EXPECT_THAT(desk.coordinator->ended().counted, ElementsAre(2));
}

TEST(Coordinator, ClientsGetTheDifferenceToTheVersionThatTheyHave) {
  Desk desk({.ask = 1, .use = 1, .least = 1, .update_bits = 16});
  desk.ask_all(1);
  desk.expect<Done>(0, desk.update(0, desk.expect<UploadOrder>(0, Ready{1})));
  desk.next_round();
  EXPECT_EQ(desk.expect<Offer>(0, CheckIn{10, 0}).version, 1);
  EXPECT_EQ(desk.expect<Task>(0, Fetch{}, 2).base_version, 0);
  EXPECT_EQ(desk.expect<Task>(0, Fetch{}, 2).model.size, 2u);
}

TEST(Coordinator, WhoCheckInDuringARoundComeBackWhenItEndsAndNotAllAtOnce) {
  Desk desk(kTwo);
  desk.ask_all(2);
  desk.now += std::chrono::seconds(20);
  std::vector<double> pauses;
  for (ClientId id = 10; id < 400; ++id)
    pauses.push_back(desk.expect<ComeBack>(id, CheckIn{10, -1}).seconds);
  const auto [least, most] = std::ranges::minmax(pauses);
  EXPECT_GE(least, 40) << "the rest of the window";
  EXPECT_GT(most - least, 2);
  EXPECT_LE(most, 40 + 4);
}

TEST(Coordinator, WhileARoundEndsClientsWaitForTheNext) {
  Desk desk({.ask = 1, .use = 1, .least = 1, .update_bits = 16});
  desk.ask_all(1);
  desk.expect<Done>(0, desk.update(0, desk.expect<UploadOrder>(0, Ready{1})));
  EXPECT_TRUE(desk.coordinator->has_ended());
  EXPECT_TRUE(desk.waits(1, CheckIn{10, -1}));
  desk.coordinator->take_answerable();
  desk.next_round();
  EXPECT_THAT(desk.coordinator->take_answerable(), testing::Contains(1));
  EXPECT_EQ(desk.expect<Offer>(1, CheckIn{10, -1}).version, 1);
  desk.coordinator->finish(desk.now);
  desk.expect<Over>(0, CheckIn{10, -1});
}

TEST(Coordinator, AfterTheLastRoundClientsAreExpectedForATimeAtMost) {
  Desk desk(kTwo, {.expected_within = std::chrono::seconds(40)});
  desk.ask_all(2);
  desk.expect<ComeBack>(5, CheckIn{10, -1});  // After the window, at the latest.
  EXPECT_TRUE(desk.waits(0, Ready{1}));
  for (const ClientId id : {1, 0})
    desk.expect<Done>(id, desk.update(id, desk.expect<UploadOrder>(id, Ready{1})));
  EXPECT_GT(desk.coordinator->expected_until(), desk.now + std::chrono::seconds(90));
  desk.coordinator->finish(desk.now);
  EXPECT_EQ(desk.coordinator->expected_until(), desk.now + std::chrono::seconds(40));
  EXPECT_EQ(desk.coordinator->expected_clients(desk.now), 3);
  desk.expect<Over>(5, CheckIn{10, -1});
  EXPECT_EQ(desk.coordinator->expected_clients(desk.now), 2);
}

TEST(Coordinator, AnUpdateThatIsNotOrderedIsNotKept) {
  Desk desk(kTwo);
  const MessageHeader header{.kind = 3, .round = 1};
  ASSERT_TRUE(is_question<Update>(header));
  EXPECT_EQ(desk.coordinator->limit_of(0, header), 0u);
  desk.ask_all(2);
  EXPECT_EQ(desk.coordinator->limit_of(0, header), 0u);
  desk.ask(0, Ready{1});
  const auto order = desk.expect<UploadOrder>(1, Ready{1});
  const Message message = encode(desk.update(1, order), 1, 1);
  EXPECT_EQ(desk.coordinator->limit_of(1, header),
            message.head.size() + message.tail.size - MessageHeader::kBytes);
  desk.expect<Done>(1, desk.update(1, order));
  EXPECT_EQ(desk.coordinator->limit_of(1, header), 0u);
}

}  // namespace
}  // namespace gradwire::federated
