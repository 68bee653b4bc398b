#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include "gradwire/base/log.h"
#include "gradwire/bootstrap/handshake/handshake_server.h"
#include "gradwire/federated/remote/client_session.h"
#include "gradwire/federated/remote/message_channel.h"
#include "gradwire/net/poll_set.h"
#include "tests/federated/secure_companion.h"
#include "tests/support/loopback.h"

namespace gradwire::federated {
namespace {

using gradwire::test::kClock;
using gradwire::test::kNetwork;
using gradwire::test::SecureCompanion;
using gradwire::test::SecureDesk;
using testing::HasSubstr;

/// Changes an answer, and the round of its header.
using RemoteLie =
    std::function<void(std::string_view question, Answer& answer, std::int64_t& round)>;

/// A server that answers the first client over the network as a coordinator does, but for a lie.
/// The others are in memory.
class RemoteLiar {
 public:
  RemoteLiar(const SecurePolicy& policy, RemoteLie lie)
      : desk_(5, policy),
        lie_(std::move(lie)),
        listener_(*net::listen_on(test::any_loopback_port())) {
    set_log_sink([](std::string_view) {});
    victim_ = desk_.identities.front();
    victim_.server = net::local_address(listener_).to_string();
    for (std::size_t i = 1; i < desk_.identities.size(); ++i)
      companions_.emplace_back(desk_, desk_.identities[i]);
    stop_ = *kNetwork.make_pair();
    thread_ = std::thread([this] { serve(); });
  }
  ~RemoteLiar() {
    stop();
    set_log_sink({});
  }

  ClientSession session(const SecureDemands& demands) {
    return {kNetwork,
            {.identity = victim_,
             .server = {},
             .state = desk_.folder / "victim.state",
             .limits = {},
             .secure = demands,
             .give_up = {},
             .first_pause = std::chrono::milliseconds(1)},
            [] { return Duration{}; }};
  }
  ClientId victim() const { return victim_.id; }
  /// Once the victim's update counts: ends the round, and returns the first element of its sum.
  std::uint64_t sum() {
    stop();
    while (!desk_.coordinator->has_ended())
      for (SecureCompanion& one : companions_) one.go_on();
    return (*desk_.coordinator->ended().sum)[0][0];
  }

 private:
  void stop() {
    stop_.second.close();
    if (thread_.joinable()) thread_.join();
  }

  void serve() {
    std::unique_ptr<MessageChannel> channel;
    bootstrap::HandshakeServer handshakes(
        kClock, bootstrap::listeners_of(std::move(listener_)),
        {.credentials = desk_.enrolment.credentials(), .world_size = bootstrap::kNoWorld},
        [](const bootstrap::Claims&) { return bootstrap::Verdict::accepted; },
        [&](bootstrap::AuthenticatedConnection made) {
          channel = std::make_unique<MessageChannel>(std::move(made.socket),
                                                     net::TlsStream::End::server, made.key);
        });
    for (net::PollSet set;; set.clear()) {
      const std::size_t stop = set.add(stop_.first, POLLIN);
      if (channel) set.add(channel->socket(), channel->wanted_events());
      const bool has_more = channel && (channel->has_more() || channel->is_deciding());
      const Time latest = has_more ? Time{} : after(kClock.now(), std::chrono::seconds(1));
      set.wait(handshakes.watch(set, {kClock, latest}));
      if (set.returned_events(stop) != 0) return;
      ASSERT_TRUE(handshakes.advance(set));
      if (channel && !advance(*channel)) channel.reset();
    }
  }

  Status advance(MessageChannel& channel) {
    GRADWIRE_RETURN_IF_ERROR(channel.advance());
    if (channel.is_deciding()) channel.receive(true);
    GRADWIRE_RETURN_IF_ERROR(channel.advance());
    if (!channel.has_message()) return {};
    const MessageHeader header = *channel.header();
    GRADWIRE_ASSIGN_OR_RETURN(const auto question, decode_question(header, channel.take()));
    Answer answer = answer_to(header, question);
    std::int64_t round = desk_.coordinator->round_number();
    lie_(name_of(question), answer, round);
    channel.send(encode(answer, round));
    return channel.advance();
  }

  Answer answer_to(const MessageHeader& header, const Question& question) {
    for (int turn = 0; turn < 10; ++turn) {
      const auto reply =
          desk_.coordinator->reply(victim_.id, header.instance, header.round, question, desk_.now);
      if (reply) {
        if (std::holds_alternative<Task>(*reply))
          desk_.coordinator->on_task_sent(victim_.id, desk_.now);
        return *reply;
      }
      for (SecureCompanion& one : companions_) one.go_on();
    }
    return Wait{};
  }

  SecureDesk desk_;
  RemoteLie lie_;
  net::Socket listener_;
  ClientIdentity victim_;
  std::vector<SecureCompanion> companions_;
  std::pair<net::Socket, net::Socket> stop_;
  std::thread thread_;
};

/// Takes part in a round; returns the error, or whether the update counts.
std::string taking_part(ClientSession& session, ClientId id,
                        const ClientSession::Terms& terms = {.update_bits = 16}) {
  const auto task = session.check_in(10, -1);
  if (!task) return task.error().message;
  if (const auto* back = std::get_if<ComeBack>(&*task)) return back->reason;
  const auto order = session.ready(1, 0.1, terms);
  if (!order) return order.error().message;
  const auto& upload = std::get<UploadOrder>(*order);
  const auto done = session.upload(test::contribution_of(id, upload.bits, upload.weight));
  if (!done) return done.error().message;
  return done->counts ? "counts" : "does not count";
}

constexpr SecurePolicy kPassiveFour{.neighbours = 4, .threshold = 3};
constexpr SecurePolicy kActiveFour{.neighbours = 4, .threshold = 3, .active = true};

std::string told_by_liar(const RemoteLie& lie, const SecurePolicy& policy = kPassiveFour,
                         const SecureDemands& demands = {.is_required = true},
                         const ClientSession::Terms& terms = {.update_bits = 16}) {
  RemoteLiar server(policy, lie);
  ClientSession session = server.session(demands);
  return taking_part(session, server.victim(), terms);
}

/// A lie in an order of secure aggregation, of this kind.
template <class Kind>
RemoteLie changed_order(const std::function<void(Kind&)>& change) {
  return [change](std::string_view, Answer& answer, std::int64_t&) {
    auto* order = std::get_if<SecureOrder>(&answer);
    if (order == nullptr) return;
    auto message = decode<Kind>(order->message.bytes());
    if (!message) return;
    change(*message);
    order->message = Blob::of(encode(*message));
  };
}

constexpr auto kNoLie = [](std::string_view, Answer&, std::int64_t&) {};

TEST(RemoteLiar, AnHonestOneIsBelieved) {
  EXPECT_EQ(told_by_liar(kNoLie), "counts");
  EXPECT_EQ(told_by_liar(kNoLie, kActiveFour, {.is_required = true, .least = kActiveFour}),
            "counts");
}

TEST(RemoteLiar, APlainUpdateIsNotGivenIfSecureAggregationIsRequired) {
  const RemoteLie plain = [](std::string_view, Answer& answer, std::int64_t&) {
    if (auto* order = std::get_if<UploadOrder>(&answer)) order->neighbours = 0;
  };
  for (const SecureDemands& demands :
       {SecureDemands::of(true, false, std::nullopt), SecureDemands::of(false, true, std::nullopt),
        SecureDemands::of(false, false, 2)})
    EXPECT_THAT(told_by_liar(plain, kPassiveFour, demands),
                HasSubstr("asks for an update that it could read"));
  EXPECT_FALSE(SecureDemands::of(false, false, std::nullopt).is_required);
}

RemoteLie changed_upload(const std::function<void(UploadOrder&)>& change) {
  return [change](std::string_view, Answer& answer, std::int64_t&) {
    if (auto* order = std::get_if<UploadOrder>(&answer)) change(*order);
  };
}

/// With no weight for the others, or one that lifts the update above theirs, the sum would show it.
TEST(RemoteLiar, AWeightThatSetsOneUpdateApartIsRefused) {
  for (const std::int64_t weight : {std::int64_t{0}, std::int64_t{-5}, std::int64_t{1} << 40}) {
    const auto lie = changed_upload([&](UploadOrder& order) { order.weight = weight; });
    EXPECT_THAT(told_by_liar(lie), HasSubstr(fmt::format("a weight of {}, and by its plan it is "
                                                         "10 to 10",
                                                         weight)));
    EXPECT_THAT(told_by_liar(lie, kPassiveFour, {}, {.update_bits = 16, .draws = 13}),
                HasSubstr(fmt::format("a weight of {}, and by its plan it is 1 to 13", weight)));
  }
  EXPECT_EQ(told_by_liar(kNoLie, kPassiveFour, {}, {.update_bits = 16, .draws = 13}), "counts");
  EXPECT_THAT(told_by_liar(kNoLie, kActiveFour, {.is_required = true, .least = kActiveFour},
                           {.update_bits = 16, .draws = 13}),
              HasSubstr("chooses the weights"));
}

TEST(RemoteLiar, BitsThatThePlanDoesNotAllowAreRefused) {
  const auto lie = [](std::int64_t bits) {
    return changed_upload([bits](UploadOrder& order) { order.bits = bits; });
  };
  EXPECT_THAT(told_by_liar(lie(15)), HasSubstr("elements of 15 bits"));
  for (const std::int64_t bits : {0, 65})
    EXPECT_THAT(told_by_liar(lie(bits)), HasSubstr("bytes are no message"));
}

TEST(RemoteLiar, NeighboursWithoutEndAreRefused) {
  const auto lie = changed_upload([](UploadOrder& order) {
    order.neighbours = order.threshold = std::numeric_limits<std::int32_t>::max();
    order.active = 1;
  });
  EXPECT_THAT(told_by_liar(lie, kActiveFour), HasSubstr("bytes are no message"));
}

/// The plan has a digest of the model, so that another model is another plan, too.
TEST(RemoteLiar, APlanForOneClientAloneUnmasksNothing) {
  const RemoteLie plan = [](std::string_view, Answer& answer, std::int64_t&) {
    if (auto* task = std::get_if<Task>(&answer)) task->plan = "{\"epochs\": 2}";
  };
  const auto sum_of = [](const RemoteLie& lie) {
    RemoteLiar server(kPassiveFour, lie);
    ClientSession session = server.session({.is_required = true});
    EXPECT_EQ(taking_part(session, server.victim()), "counts");
    return server.sum();
  };
  EXPECT_EQ(sum_of(kNoLie), 10U * (1 + 2 + 3 + 4 + 5));
  EXPECT_NE(sum_of(plan), 10U * (1 + 2 + 3 + 4 + 5));
  EXPECT_THAT(told_by_liar(plan, kActiveFour, {.is_required = true, .least = kActiveFour}),
              HasSubstr("not signed by the client's enrolled key, for this plan"));
}

TEST(RemoteLiar, ASecondUnmaskingIsRefused) {
  Answer request;
  const RemoteLie again = [&](std::string_view question, Answer& answer, std::int64_t&) {
    if (question == "masked update") request = answer;
    if (question == "unmasking") answer = request;
  };
  EXPECT_THAT(told_by_liar(again), HasSubstr("the request for shares comes a second time"));
}

TEST(RemoteLiar, AnOldRoundIsRefused) {
  EXPECT_THAT(told_by_liar(changed_order<Roster>([](Roster& roster) { --roster.round; })),
              HasSubstr("the roster is of round 0"));
  EXPECT_THAT(
      told_by_liar(changed_order<UnmaskRequest>([](UnmaskRequest& request) { --request.round; })),
      HasSubstr("the request for shares is of round 0"));
  const RemoteLie first_round = [](std::string_view question, Answer& answer, std::int64_t& round) {
    if (question == "check-in" && !std::holds_alternative<Offer>(answer)) answer = Offer{};
    if (question == "leave") answer = Done{};
    round = 1;
  };
  RemoteLiar server(kPassiveFour, first_round);
  {
    ClientSession session = server.session({.is_required = true});
    EXPECT_EQ(taking_part(session, server.victim()), "counts");
    EXPECT_THAT(taking_part(session, server.victim()), HasSubstr("takes part in no round twice"));
  }
  ClientSession restarted = server.session({.is_required = true});
  EXPECT_THAT(taking_part(restarted, server.victim()), HasSubstr("takes part in no round twice"));
}

TEST(RemoteLiar, ARoundWithoutEnoughOthersIsRefused) {
  EXPECT_THAT(told_by_liar(changed_order<Roster>([](Roster& roster) { roster.members.resize(2); })),
              HasSubstr("refuses round 1 of secure aggregation: the roster has 2 clients"));
  EXPECT_THAT(told_by_liar(kNoLie, kPassiveFour, {.least = {.neighbours = 20, .threshold = 11}}),
              HasSubstr("4 neighbours, a threshold of 3 and without a check of the server are "
                        "less than it accepts: 20, 11"));
  EXPECT_THAT(told_by_liar(kNoLie, kPassiveFour, {.least = kActiveFour}),
              HasSubstr("less than it accepts"));
}

TEST(RemoteLiar, AClientIsNotBothAliveAndDead) {
  EXPECT_THAT(told_by_liar(changed_order<UnmaskRequest>(
                  [](UnmaskRequest& request) { request.dead = {request.alive.front()}; })),
              HasSubstr("is said to be both alive and dead"));
}

TEST(RemoteLiar, ItsOwnKeysDoNotPassForThoseOfANeighbour) {
  const auto secret = [] { return value_or_throw(Secret::draw(system_random_bytes)); };
  const Secret key = secret(), signer = secret(), authority = secret();
  const auto forge = [&](std::string_view, Answer& answer, std::int64_t&) {
    auto* order = std::get_if<SecureOrder>(&answer);
    if (order == nullptr) return;
    auto roster = decode<Roster>(order->message.bytes());
    if (!roster) return;
    Roster::Neighbour& one = roster->neighbours.front();
    one.channel = value_or_throw(AgreementKey::of(key)).shared();
    const KeyDigest digest = digest_of_keys(one.client, one.channel, one.masking);
    one.signature = value_or_throw(ed25519_sign(signer, signed_keys({}, one.client, digest)));
    for (Roster::Member& member : roster->members)
      if (member.client == one.client) member.keys = digest;
    // All are neighbours, so that the graph is the same.
    order->message = Blob::of(encode(*roster));
    std::string forged;
    append(forged,
           value_or_throw(certify(authority, one.client, value_or_throw(ed25519_public(signer)))));
    order->certificates.replace(0, kCertificateBytes, forged);
  };
  EXPECT_THAT(told_by_liar(forge, kActiveFour), HasSubstr("client 1 has not signed its keys"));
}

}  // namespace
}  // namespace gradwire::federated
