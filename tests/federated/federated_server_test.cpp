#include "gradwire/federated/remote/federated_server.h"

#include <csignal>
#include <future>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gradwire/base/file.h"
#include "gradwire/base/log.h"
#include "gradwire/federated/remote/model_bytes.h"
#include "gradwire/federated/remote/participant.h"
#include "tests/federated/fake_server_model.h"
#include "tests/support/loopback.h"
#include "tests/support/temporary_folder.h"

namespace gradwire::federated {
namespace {

using gradwire::test::kClock;
using gradwire::test::kNetwork;
using gradwire::test::soon_enough;
using gradwire::test::TemporaryFolder;
using test::contribution_of;
using test::FakeServerModel;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsSupersetOf;

using namespace std::chrono_literals;

/// Where a client of a test leaves, without a word.
enum class Dies : std::uint8_t { never, at_check_in, with_the_model, when_ready, uploading };

/// Takes part in rounds until there are no more, or it dies. Returns how often its update counted.
int take_part(ClientSession& session, ClientId id, Dies dies = Dies::never) {
  for (int counted = 0;;) {
    auto checked_in = session.check_in(10, counted - 1);
    EXPECT_TRUE(checked_in) << checked_in.error().message;
    if (!checked_in || std::holds_alternative<Over>(*checked_in)) return counted;
    if (dies == Dies::at_check_in) return counted;
    if (std::holds_alternative<ComeBack>(*checked_in)) continue;
    if (dies == Dies::with_the_model) return counted;
    const auto after_training = session.ready(5, 0.001, {});
    if (!after_training || dies == Dies::when_ready) return counted;
    const auto* order = std::get_if<UploadOrder>(&*after_training);
    if (order == nullptr) continue;
    if (dies == Dies::uploading) return counted;
    const auto uploaded = session.upload(contribution_of(id, order->bits, order->weight));
    counted += uploaded && uploaded->counts ? 1 : 0;
  }
}

/// A server on a thread, and identities of its clients.
class ServedFederation {
 public:
  explicit ServedFederation(const RoundPolicy& policy, std::int64_t rounds,
                            const UpdateShape& shape = test::kSmallShape, std::size_t model = 100)
      : model_(shape, model) {
    options_.rounds.policy = policy;
    options_.rounds.least_pause = 1ms;
    options_.rounds.expected_within = 2s;
    options_.count = rounds;
    options_.poll = 1s;
    listen();
    set_log_sink([this](std::string_view line) {
      const std::lock_guard lock(mutex_);
      log_.emplace_back(line);
    });
  }
  ~ServedFederation() {
    stop();
    set_log_sink({});
  }

  FederatedServer::Options& options() { return options_; }
  FakeServerModel& model() { return model_; }
  Enrolment& enrolment() { return command_; }
  ClientIdentity enrol(const std::string& name) {
    return command_.enrol(name, address_.to_string());
  }
  ClientSession::Options client_options(const ClientIdentity& identity) {
    return {.identity = identity,
            .server = {},
            .state = folder_ / (identity.name + ".state"),
            .limits = {},
            .give_up = 20s,
            .first_pause = 1ms};
  }
  std::unique_ptr<ClientSession> session(const ClientIdentity& identity) {
    return std::make_unique<ClientSession>(kNetwork, client_options(identity),
                                           [] { return Duration{}; });
  }

  void listen() {
    auto listener = net::listen_on(address_);
    ASSERT_TRUE(listener) << listener.error().message;
    address_ = net::local_address(*listener);
    listener_ = std::move(*listener);
  }
  void close_listener() { listener_.close(); }
  void start() {
    if (!listener_.valid()) listen();
    stop_ = *kNetwork.make_pair();
    thread_ = std::thread([this] {
      Enrolment enrolment(folder_ / "key", Enrolment::Missing::refused);
      FederatedServer server(kNetwork, std::move(listener_), enrolment, model_, options_);
      const Status done = server.run(stop_.first);
      EXPECT_TRUE(done) << done.error().message;
      ledger_ = server.ledger();
    });
  }
  /// Waits until it returns by itself.
  void join() { thread_.join(); }
  void stop() {
    stop_.second.close();
    if (thread_.joinable()) thread_.join();
  }
  const ClientLedger& ledger() const { return ledger_; }
  std::vector<std::string> log() const {
    const std::lock_guard lock(mutex_);
    return log_;
  }
  net::SocketAddress address() const { return address_; }

  /// A channel without the rules of a ClientSession.
  std::unique_ptr<MessageChannel> connect(const ClientIdentity& identity) {
    const bootstrap::Claims claims{
        .from = identity.id, .world_size = bootstrap::kNoWorld, .encrypts = true};
    auto made = bootstrap::connect_and_authenticate(
        kNetwork, address_, shared_secret(identity.secret), claims, soon_enough());
    EXPECT_TRUE(made) << made.error().message;
    return std::make_unique<MessageChannel>(std::move(made->socket), net::TlsStream::End::client,
                                            made->key);
  }

 private:
  TemporaryFolder folder_;
  Enrolment command_{folder_ / "key", Enrolment::Missing::created};
  FakeServerModel model_;
  FederatedServer::Options options_;
  net::SocketAddress address_ = gradwire::test::any_loopback_port();
  net::Socket listener_;
  std::pair<net::Socket, net::Socket> stop_;
  std::thread thread_;
  ClientLedger ledger_;
  mutable std::mutex mutex_;
  std::vector<std::string> log_;
};

/// Moves until `is_done`; fails the test if the other end leaves.
Status advance_until(MessageChannel& channel, const std::function<bool()>& is_done) {
  const net::Deadline until = soon_enough();
  for (;;) {
    GRADWIRE_RETURN_IF_ERROR(channel.advance());
    if (is_done()) return {};
    if (until.passed()) return failure(ErrorKind::timeout, "nothing comes");
    if (!channel.has_more()) net::wait_for(channel.socket(), channel.wanted_events(), until);
  }
}

Result<Answer> answer_of(MessageChannel& channel) {
  GRADWIRE_RETURN_IF_ERROR(advance_until(channel, [&] { return channel.is_deciding(); }));
  channel.receive(true);
  GRADWIRE_RETURN_IF_ERROR(advance_until(channel, [&] { return channel.has_message(); }));
  const MessageHeader header = *channel.header();
  return decode_answer(header, channel.take());
}

Result<Answer> ask(MessageChannel& channel, Message message) {
  channel.send(std::move(message));
  return answer_of(channel);
}

/// Waits until the server closes the connection.
Error closed(MessageChannel& channel) {
  const Status status = advance_until(channel, [] { return false; });
  return status.error();
}

RoundPolicy policy_of(int ask, int use, int least) {
  return {.ask = ask, .use = use, .least = least, .gather = 20s, .update_bits = 16};
}

TEST(FederatedServer, ClientsAndServerRunRounds) {
  ServedFederation served(policy_of(4, 4, 4), 3);
  std::vector<ClientIdentity> identities;
  for (int i = 0; i < 4; ++i) identities.push_back(served.enrol(fmt::format("phone-{}", i)));
  served.start();
  std::vector<std::thread> clients;
  std::vector<int> counted(4);
  for (std::size_t i = 0; i < 4; ++i) {
    clients.emplace_back([&, i] {
      const auto session = served.session(identities[i]);
      counted[i] = take_part(*session, identities[i].id);
      EXPECT_EQ(session->costs().last_round(), 3);
      EXPECT_GT(session->costs().today().down_bytes, 3 * 32);
    });
  }
  for (std::thread& client : clients) client.join();
  served.join();
  EXPECT_THAT(counted, ElementsAre(3, 3, 3, 3));
  const auto ended = served.model().ended();
  ASSERT_EQ(ended.size(), 3u);
  for (const auto& round : ended) {
    EXPECT_EQ(round.element, 10u * (1 + 2 + 3 + 4));
    EXPECT_EQ(round.weight, 40);
    EXPECT_FALSE(round.record.is_abandoned);
  }
  EXPECT_EQ(served.ledger().at(2).counted, 3);
  EXPECT_GT(served.ledger().at(2).up_bytes, 3 * (5 * 22 / 8));
  EXPECT_EQ(served.model().stops(), 1);
  EXPECT_THAT(served.log(), testing::IsEmpty());
}

TEST(FederatedServer, ClientsKilledInEachPhase) {
  ServedFederation served(policy_of(8, 8, 2), 2);
  served.options().rounds.policy.gather = 300ms;
  served.options().rounds.policy.window = 1s;
  served.options().rounds.policy.exchange = 500ms;
  const std::vector<Dies> fates{Dies::never,          Dies::never,      Dies::never,
                                Dies::at_check_in,    Dies::when_ready, Dies::uploading,
                                Dies::with_the_model, Dies::never};
  std::vector<ClientIdentity> identities;
  for (std::size_t i = 0; i < fates.size(); ++i)
    identities.push_back(served.enrol(fmt::format("phone-{}", i)));
  std::vector<pid_t> processes;
  for (std::size_t i = 0; i < fates.size(); ++i) {
    processes.push_back(::fork());
    if (processes.back() != 0) continue;
    served.close_listener();
    const auto session = served.session(identities[i]);
    take_part(*session, identities[i].id, fates[i]);
    ::kill(::getpid(), fates[i] == Dies::never ? SIGTERM : SIGKILL);
  }
  served.start();
  served.join();
  for (std::size_t i = 0; i < processes.size(); ++i) {
    int status = 0;
    ::waitpid(processes[i], &status, 0);
    EXPECT_EQ(WTERMSIG(status), fates[i] == Dies::never ? SIGTERM : SIGKILL) << i;
  }
  const auto ended = served.model().ended();
  ASSERT_EQ(ended.size(), 2u);
  for (const auto& round : ended) {
    EXPECT_FALSE(round.record.is_abandoned) << round.record.reason;
    std::uint64_t sum = 0;
    for (const ClientId id : round.counted) {
      sum += static_cast<std::uint64_t>(10 * (id + 1));
      EXPECT_EQ(fates[static_cast<std::size_t>(id)], Dies::never) << id;
    }
    EXPECT_EQ(round.element, sum);
    EXPECT_GE(round.counted.size(), 2u);
  }
}

TEST(FederatedServer, ARestartIsWaitedFor) {
  ServedFederation served(policy_of(2, 2, 2), 0);
  const auto one = served.enrol("phone-1"), two = served.enrol("phone-2");
  served.start();
  const auto first = served.session(one), second = served.session(two);
  std::thread client([&] { take_part(*first, one.id); });
  std::thread other([&] { take_part(*second, two.id); });
  served.model().wait_for_rounds(2);
  served.stop();
  const auto before = served.model().ended();
  served.options().rounds.first_round = served.model().begun() + 1;
  served.options().rounds.ledger = before.back().ledger;
  served.options().count = 2;
  served.start();
  client.join();
  other.join();
  served.join();
  const auto after = served.model().ended();
  ASSERT_EQ(after.size(), before.size() + 2);
  EXPECT_EQ(after.back().ledger.at(one.id).counted, static_cast<std::int64_t>(after.size()));
  EXPECT_EQ(after.back().element, 10u * (1 + 2));
}

TEST(FederatedServer, ARevokedClientIsRefusedWhileTheServerRuns) {
  ServedFederation served(policy_of(2, 2, 2), 0);
  const auto one = served.enrol("phone-1");
  served.start();
  const auto channel = served.connect(one);
  const auto session = served.session(one);
  served.enrolment().revoke("phone-1");
  const auto refused = session->check_in(10, -1);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::refused);
  EXPECT_THAT(refused.error().message, HasSubstr("revoked"));
}

TEST(FederatedServer, StrangersAndAnothersIdentityAreRefused) {
  ServedFederation served(policy_of(2, 2, 2), 0);
  const auto one = served.enrol("phone-1"), two = served.enrol("phone-2");
  served.start();
  ClientIdentity thief = one;
  thief.id = two.id;
  EXPECT_EQ(served.session(thief)->check_in(10, -1).error().kind, ErrorKind::refused);
  ClientIdentity stranger = one;
  stranger.id = 77;
  EXPECT_EQ(served.session(stranger)->check_in(10, -1).error().kind, ErrorKind::refused);
  const bootstrap::Claims plain{.from = one.id, .world_size = bootstrap::kNoWorld};
  const auto unencrypted = bootstrap::connect_and_authenticate(
      kNetwork, served.address(), shared_secret(one.secret), plain, soon_enough());
  EXPECT_FALSE(unencrypted);
  const auto channel = served.connect(one);
  EXPECT_TRUE(ask(*channel, encode(CheckIn{0, -1}, 1, -1))) << "the server still answers";
  EXPECT_THAT(served.log(), IsSupersetOf({HasSubstr("claims to be client 1, which has another"),
                                          HasSubstr("claims to be client 77, which has another")}));
}

TEST(FederatedServer, OfTwoProcessesWithOneIdentityTheSecondIsTold) {
  ServedFederation served(policy_of(2, 2, 2), 0);
  served.options().rounds.expected_within = 20s;
  const auto one = served.enrol("phone-1"), two = served.enrol("phone-2");
  served.start();
  const auto first = served.connect(one);
  first->send(encode(CheckIn{10, -1}, 1, -1));
  const auto other = served.connect(two);
  other->send(encode(CheckIn{10, -1}, 2, -1));
  ASSERT_TRUE(advance_until(*first, [&] { return first->is_deciding(); }));
  const auto second = served.session(one);
  const auto told = second->check_in(10, -1);
  ASSERT_TRUE(told) << told.error().message;
  EXPECT_THAT(std::get<ComeBack>(*told).reason, HasSubstr("another process uses this identity"));
  EXPECT_THAT(served.log(), ElementsAre(HasSubstr("(phone-1): another process")));
  ClientSession::Options impatient = served.client_options(one);
  impatient.give_up = 20ms;
  const auto given_up = ClientSession(kNetwork, impatient, [] { return Duration{}; }).describe();
  ASSERT_FALSE(given_up);
  EXPECT_EQ(given_up.error().kind, ErrorKind::refused);
  EXPECT_THAT(given_up.error().message,
              HasSubstr("has phone-1 wait: another process uses this identity"));
}

/// Such as one that was killed and is started again.
TEST(FederatedServer, ASecondProcessWaitsUntilTheFirstIsForgotten) {
  ServedFederation served(policy_of(2, 2, 2), 0);
  served.options().rounds.expected_within = 1s;
  const auto one = served.enrol("phone-1");
  served.start();
  const auto first = served.connect(one);
  first->send(encode(Fetch{}, 1, 1));
  ASSERT_TRUE(advance_until(*first, [&] { return first->is_deciding(); }));
  const auto told = served.session(one)->describe();
  ASSERT_TRUE(told) << told.error().message;
}

/// Limits, and a server that began anew.
TEST(FederatedServer, AClientSaysWhyItWaits) {
  std::string said;
  Participant* waiting = nullptr;
  ServedFederation served(policy_of(1, 1, 1), 0);
  set_log_sink([&](std::string_view line) {
    if (line.find("asking again") == std::string_view::npos) return;  // By another thread.
    said = line;
    waiting->stop();
  });
  ClientSession::Options limited = served.client_options(served.enrol("phone-1"));
  limited.limits.memory_bytes = 999;
  const ClientSession::Options old = served.client_options(served.enrol("phone-2"));
  write_file(old.state, R"({"version": 1, "last_round": 1000, "seconds_per_step": 0, "day": 0,
      "compute_seconds": 0, "up_bytes": 0, "down_bytes": 0})");
  served.start();
  const auto said_by = [&](const ClientSession::Options& session) {
    Participant participant(kNetwork, {.session = session, .eligibility = {}},
                            [] { return Duration{}; });
    waiting = &participant;
    EXPECT_FALSE(participant.begin(10));
    return said;
  };
  EXPECT_THAT(said_by(limited), HasSubstr("declined: the work needs"));
  EXPECT_THAT(said_by(old), HasSubstr("if the server began anew, remove " + old.state.string()));
}

/// The same plan for all clients, and a model or a description of its own for one of them.
TEST(FederatedServer, AModelThatIsNotThePlansIsNotTrained) {
  const std::vector<float> values{1, 2, 3, 4, 5}, others{1, 2, 3, 4, 6};
  const std::string description = to_json(ModelDescription{.tensors = {{"weight", {5}}}});
  const auto outcome_of = [&](const Digest& model) -> std::string {
    Participant* waiting = nullptr;
    std::string said;
    ServedFederation served(policy_of(1, 1, 1), 0);
    served.model().set_model(description, to_json(ClientPlan{.model = model}),
                             Blob::of(model_bytes(values, ModelType::float32)));
    set_log_sink([&](std::string_view line) {
      if (line.find("the SHA-256 of the model") == std::string_view::npos) return;
      said = line;
      waiting->stop();
    });
    const auto session = served.client_options(served.enrol("phone-1"));
    served.start();
    Participant participant(kNetwork, {.session = session, .eligibility = {}},
                            [] { return Duration{}; });
    waiting = &participant;
    participant.set_tensors(participant.description().tensors);
    const auto work = participant.begin(10);
    EXPECT_TRUE(!work || work->model == values);
    return work ? "trains" : said;
  };
  EXPECT_EQ(outcome_of(digest_of_model(description, values)), "trains");
  EXPECT_THAT(outcome_of(digest_of_model(description, others)), HasSubstr("round 1: the SHA-256"));
  EXPECT_THAT(outcome_of(digest_of_model(description + " ", values)), HasSubstr("round 1"));
}

TEST(FederatedServer, TheOthersStopWhenEnoughAreReady) {
  ServedFederation served(policy_of(3, 1, 1), 1);
  std::vector<ClientIdentity> identities;
  for (int i = 0; i < 3; ++i) identities.push_back(served.enrol(fmt::format("phone-{}", i)));
  served.start();
  std::vector<std::thread> clients;
  std::atomic<int> stopped = 0, ordered = 0;
  for (const ClientIdentity& identity : identities) {
    clients.emplace_back([&served, &identity, &stopped, &ordered] {
      const auto session = served.session(identity);
      auto task = session->check_in(10, -1);
      while (task && std::holds_alternative<ComeBack>(*task)) task = session->check_in(10, -1);
      ASSERT_TRUE(task) << task.error().message;
      if (!std::holds_alternative<ClientTask>(*task)) return;
      const auto answer = session->ready(1, 0.1, {});
      ASSERT_TRUE(answer) << answer.error().message;
      const auto* order = std::get_if<UploadOrder>(&*answer);
      ++(order != nullptr ? ordered : stopped);
      if (order != nullptr) {
        EXPECT_TRUE(session->upload(contribution_of(identity.id, order->bits, order->weight)));
      }
      EXPECT_EQ(take_part(*session, identity.id), 0);
    });
  }
  for (std::thread& client : clients) client.join();
  served.join();
  EXPECT_EQ(ordered, 1);
  EXPECT_EQ(served.model().ended().at(0).record.stopped, 2);
}

TEST(FederatedServer, ALongPollEndsWithWaitAndTheQuestionIsAskedAgain) {
  ServedFederation served(policy_of(2, 2, 2), 0);
  served.options().poll = 1ms;
  const auto one = served.enrol("phone-1"), two = served.enrol("phone-2");
  served.start();
  const auto channel = served.connect(one);
  for (int again = 0; again < 3; ++again) {
    const auto answer = ask(*channel, encode(CheckIn{10, -1}, 1, -1));
    ASSERT_TRUE(answer) << answer.error().message;
    EXPECT_TRUE(std::holds_alternative<Wait>(*answer));
  }
  const auto session = served.session(two);
  const auto task = session->check_in(10, -1);
  ASSERT_TRUE(task) << task.error().message;
  EXPECT_TRUE(std::holds_alternative<ClientTask>(*task));
  const auto offer = ask(*channel, encode(CheckIn{10, -1}, 1, -1));
  EXPECT_TRUE(std::holds_alternative<Offer>(*offer));
}

TEST(FederatedServer, WorkBeyondALimitIsDeclinedBeforeTheModelIsSent) {
  ServedFederation served(policy_of(1, 1, 1), 0, test::kSmallShape, 1'000'000);
  const auto one = served.enrol("phone-1");
  served.start();
  auto options = served.client_options(one);
  options.limits.round.down_bytes = 500'000;
  ClientSession session(kNetwork, options, [] { return Duration{}; });
  const auto declined = session.check_in(10, -1);
  ASSERT_TRUE(declined) << declined.error().message;
  EXPECT_THAT(std::get<ComeBack>(*declined).reason, HasSubstr("declined: the work takes 1000"));
  EXPECT_LT(session.costs().today().down_bytes, 1000);
}

/// The offer is for others with as many samples as the client; theirs add bits to the sum.
TEST(FederatedServer, AnUploadThatTheOthersMakeTooLongIsNotSent) {
  const UpdateShape shape{.elements = 10'000, .metrics = 2};
  ServedFederation served(policy_of(3, 3, 2), 1, shape);
  ClientSession::Options limited = served.client_options(served.enrol("phone-0"));
  limited.limits.round.up_bytes = 30'000;  // Enough for 16 + 2 bits an element, not 16 + 16.
  const std::vector<ClientIdentity> others{served.enrol("phone-1"), served.enrol("phone-2")};
  served.start();
  std::vector<std::thread> clients;
  for (const ClientIdentity& identity : others) {
    clients.emplace_back([&served, &identity, &shape] {
      const auto session = served.session(identity);
      const auto task = session->check_in(20'000, -1);
      ASSERT_TRUE(task && std::holds_alternative<ClientTask>(*task));
      const auto answer = session->ready(1, 0.1, {.shape = shape});
      ASSERT_TRUE(answer) << answer.error().message;
      const auto order = std::get<UploadOrder>(*answer);
      EXPECT_EQ(order.bits, 32);
      EXPECT_TRUE(session->upload(contribution_of(identity.id, order.bits, order.weight, shape)));
      EXPECT_EQ(take_part(*session, identity.id), 0);
    });
  }
  ClientSession session(kNetwork, limited, [] { return Duration{}; });
  const auto task = session.check_in(1, -1);
  ASSERT_TRUE(task && std::holds_alternative<ClientTask>(*task));
  const auto answer = session.ready(1, 0.1, {.shape = shape});
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().kind, ErrorKind::refused);
  EXPECT_THAT(answer.error().message, HasSubstr("the limit of a round is 30000: the sum has 32"));
  EXPECT_LT(session.costs().today().up_bytes, 30'000);
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(take_part(session, 0), 0);
  served.join();
  EXPECT_THAT(served.model().ended().at(0).counted, ElementsAre(1, 2));
}

TEST(FederatedServer, RandomBytesEndAConnectionAndNothingElse) {
  ServedFederation served(policy_of(1, 1, 1), 1);
  const auto one = served.enrol("phone-1"), two = served.enrol("phone-2");
  served.start();
  Random random(3);
  for (int i = 0; i < 30; ++i) {
    const auto channel = served.connect(two);
    Message noise = encode(CheckIn{10, -1}, 1, -1);
    noise.tail = Blob::of(std::vector<std::byte>(1 + random.below(2000), std::byte{1}));
    const std::size_t size = noise.head.size() + noise.tail.size - MessageHeader::kBytes;
    store_little_endian(noise.head.data() + 24, std::uint64_t{size});
    for (int byte = 0; byte < i % 5; ++byte)
      noise.head[random.below(noise.head.size())] ^= static_cast<std::byte>(random.below(255) + 1);
    channel->send(std::move(noise));
    while (channel->advance() && !channel->has_sent()) {
      net::wait_for(channel->socket(), channel->wanted_events(), soon_enough());
    }
  }
  // A peer that has no identity.
  auto stranger = net::connect_to(served.address(), soon_enough());
  ASSERT_TRUE(stranger);
  const std::string text = "GET / HTTP/1.1\r\n\r\n";
  net::send_some(*stranger, std::as_bytes(std::span(text)));
  EXPECT_EQ(take_part(*served.session(one), one.id), 1);
}

TEST(FederatedServer, MemoryIsBoundedWhateverClientsAnnounce) {
  ServedFederation served(policy_of(1, 1, 1), 0);
  const auto one = served.enrol("phone-1");
  served.start();
  const Blob flood = Blob::of(std::vector<std::byte>(128 << 20, std::byte{1}));
  rusage before{};
  ::getrusage(RUSAGE_SELF, &before);
  for (const std::uint64_t size : {std::uint64_t{1} << 40, ~std::uint64_t{0}}) {
    for (const auto kind : {std::uint16_t{0}, std::uint16_t{3}}) {
      const auto channel = served.connect(one);
      Message lie = encode(Question(CheckIn{10, -1}), 1, 1);
      store_little_endian(lie.head.data() + 2, kind);
      store_little_endian(lie.head.data() + 24, size);
      lie.tail = flood;
      channel->send(std::move(lie));
      while (channel->advance() && !channel->has_sent()) {
        net::wait_for(channel->socket(), channel->wanted_events(), soon_enough());
      }
    }
  }
  const auto channel = served.connect(one);
  EXPECT_TRUE(ask(*channel, encode(CheckIn{10, -1}, 1, -1)));
  rusage after{};
  ::getrusage(RUSAGE_SELF, &after);
  EXPECT_LT(after.ru_maxrss - before.ru_maxrss, 64 * 1024) << "KiB";
}

TEST(FederatedServer, AnUpdateWaitsForRoomInItsSender) {
  ServedFederation served(policy_of(2, 2, 2), 1);
  served.options().max_update_bytes = 1;  // One at a time.
  std::vector<ClientIdentity> identities;
  for (int i = 0; i < 3; ++i) identities.push_back(served.enrol(fmt::format("phone-{}", i)));
  served.start();
  std::vector<std::unique_ptr<MessageChannel>> channels;
  for (const ClientIdentity& one : identities) channels.push_back(served.connect(one));
  std::vector<Message> updates;
  channels[0]->send(encode(CheckIn{10, -1}, 1, -1));
  ASSERT_TRUE(advance_until(*channels[0], [&] { return channels[0]->has_sent(); }));
  ASSERT_TRUE(ask(*channels[1], encode(CheckIn{10, -1}, 1, -1)));
  ASSERT_TRUE(answer_of(*channels[0]));
  channels[0]->send(encode(Ready{1}, 1, 1));
  ASSERT_TRUE(advance_until(*channels[0], [&] { return channels[0]->has_sent(); }));
  ASSERT_TRUE(ask(*channels[1], encode(Ready{1}, 1, 1)));
  const auto order = answer_of(*channels[0]);
  ASSERT_TRUE(order && std::holds_alternative<UploadOrder>(*order));
  const int bits = static_cast<int>(std::get<UploadOrder>(*order).bits);
  const std::int64_t weight = std::get<UploadOrder>(*order).weight;
  for (const ClientId id : {0, 1})
    updates.push_back(encode(to_update(contribution_of(id, bits, weight)), 1, 1));
  // The first one stops in the middle.
  channels[0]->send({updates[0].head, {}});
  ASSERT_TRUE(advance_until(*channels[0], [&] { return channels[0]->has_sent(); }));
  ASSERT_TRUE(ask(*channels[2], encode(Fetch{}, 1, 1)));
  channels[1]->send(updates[1]);
  ASSERT_TRUE(advance_until(*channels[1], [&] { return channels[1]->has_sent(); }));
  for (int again = 0; again < 3; ++again) ASSERT_TRUE(ask(*channels[2], encode(Fetch{}, 1, 1)));
  ASSERT_TRUE(channels[1]->advance());
  EXPECT_FALSE(channels[1]->is_deciding()) << "it has no answer yet";
  channels[0]->send({{}, updates[0].tail});
  for (const int id : {0, 1}) {
    const auto done = answer_of(*channels[static_cast<std::size_t>(id)]);
    EXPECT_TRUE(done && std::holds_alternative<Done>(*done));
  }
}

TEST(FederatedServer, UpdatesThatArriveAtOnceShareABudgetAndAllCount) {
  const UpdateShape shape{.elements = 400'000, .metrics = 2};
  ServedFederation served(policy_of(6, 6, 6), 1, shape);
  served.options().max_update_bytes = 1'000'000;  // One at a time.
  std::vector<ClientIdentity> identities;
  for (int i = 0; i < 6; ++i) identities.push_back(served.enrol(fmt::format("phone-{}", i)));
  served.start();
  std::vector<std::thread> clients;
  for (const ClientIdentity& identity : identities) {
    clients.emplace_back([&served, &identity, &shape] {
      const auto session = served.session(identity);
      auto task = session->check_in(10, -1);
      ASSERT_TRUE(task && std::holds_alternative<ClientTask>(*task));
      const auto answer = session->ready(1, 0.1, {});
      ASSERT_TRUE(answer && std::holds_alternative<UploadOrder>(*answer));
      const auto order = std::get<UploadOrder>(*answer);
      const auto done =
          session->upload(contribution_of(identity.id, order.bits, order.weight, shape));
      EXPECT_TRUE(done) << done.error().message;
      EXPECT_EQ(take_part(*session, identity.id), 0);
    });
  }
  for (std::thread& client : clients) client.join();
  served.join();
  EXPECT_EQ(served.model().ended().at(0).element, 10u * (1 + 2 + 3 + 4 + 5 + 6));
}

TEST(FederatedServer, ASlowReaderIsDropped) {
  ServedFederation served(policy_of(1, 1, 1), 0, test::kSmallShape, std::size_t{64} << 20);
  served.options().patience = 50ms;
  const auto one = served.enrol("phone-1");
  served.start();
  const auto channel = served.connect(one);
  const auto offer = ask(*channel, encode(CheckIn{10, -1}, 1, -1));
  ASSERT_TRUE(offer) << offer.error().message;
  const net::Socket& socket = channel->socket();
  channel->send(encode(Fetch{}, 1, 1));
  while (!channel->has_sent()) ASSERT_TRUE(channel->advance());
  // It reads no model; the kernels' buffers have a part of it.
  const net::Deadline until = soon_enough();
  while (served.log().empty() && !until.passed())
    net::wait_for(socket, POLLHUP, until.or_after(1ms));
  EXPECT_THAT(served.log(), ElementsAre(HasSubstr("its connection is too slow")));
}

TEST(FederatedServer, AClientThatLosesItsConnectionGoesOn) {
  ServedFederation served(policy_of(1, 1, 1), 1);
  const auto one = served.enrol("phone-1");
  served.start();
  const auto ask_anew = [&](const Question& question, std::int64_t round) {
    const auto channel = served.connect(one);
    auto answer = ask(*channel, encode(question, 1, round));
    EXPECT_TRUE(answer) << answer.error().message;
    return *answer;
  };
  for (int again = 0; again < 2; ++again)
    EXPECT_TRUE(std::holds_alternative<Offer>(ask_anew(CheckIn{10, -1}, -1)));
  for (int again = 0; again < 2; ++again)
    EXPECT_TRUE(std::holds_alternative<Task>(ask_anew(Fetch{}, 1)));
  UploadOrder order;
  for (int again = 0; again < 2; ++again) order = std::get<UploadOrder>(ask_anew(Ready{1}, 1));
  const auto update = to_update(contribution_of(one.id, order.bits, order.weight));
  EXPECT_TRUE(std::holds_alternative<Done>(ask_anew(update, 1)));
  EXPECT_TRUE(std::holds_alternative<Done>(ask_anew(update, 1)));
  EXPECT_TRUE(std::holds_alternative<Refusal>(ask_anew(update, 3)));
  const auto small = to_update(contribution_of(one.id, order.bits, order.weight, {1, 2}));
  EXPECT_TRUE(std::holds_alternative<Done>(ask_anew(small, 1))) << "it has counted already";
  EXPECT_TRUE(std::holds_alternative<Over>(ask_anew(CheckIn{10, -1}, -1)));
  served.join();
  EXPECT_EQ(served.model().ended().at(0).element, 10u);
}

TEST(FederatedServer, AClientThatIsGoneBeforeTheDrawIsNotAsked) {
  ServedFederation served(policy_of(2, 2, 2), 0);
  const auto one = served.enrol("phone-1"), two = served.enrol("phone-2");
  const auto three = served.enrol("phone-3");
  served.start();
  auto first = served.connect(one);
  const auto second = served.connect(two), third = served.connect(three);
  first->send(encode(CheckIn{10, -1}, 1, -1));
  ASSERT_TRUE(advance_until(*first, [&] { return first->has_sent(); }));
  ASSERT_TRUE(ask(*third, encode(Fetch{}, 1, 1)));
  first.reset();
  ASSERT_TRUE(ask(*third, encode(Fetch{}, 1, 1)));
  second->send(encode(CheckIn{10, -1}, 1, -1));
  ASSERT_TRUE(advance_until(*second, [&] { return second->has_sent(); }));
  const auto offer = ask(*third, encode(CheckIn{10, -1}, 1, -1));
  EXPECT_TRUE(offer && std::holds_alternative<Offer>(*offer)) << "the second of two";
  EXPECT_TRUE(answer_of(*second));
}

TEST(FederatedServer, OthersAreAnsweredWhileARoundEnds) {
  ServedFederation served(policy_of(1, 1, 1), 2);
  const auto one = served.enrol("phone-1"), two = served.enrol("phone-2");
  served.model().hold(true);
  served.start();
  const auto first = served.connect(one), second = served.connect(two);
  EXPECT_TRUE(ask(*first, encode(CheckIn{10, -1}, 1, -1)));
  const auto order = ask(*first, encode(Ready{1}, 1, 1));
  ASSERT_TRUE(order && std::holds_alternative<UploadOrder>(*order));
  const auto& [bits, weight, neighbours, threshold, active] = std::get<UploadOrder>(*order);
  EXPECT_EQ(neighbours + threshold + active, 0);
  EXPECT_TRUE(ask(*first, encode(to_update(contribution_of(one.id, bits, weight)), 1, 1)));
  for (int again = 0; again < 3; ++again) {
    const auto answer = ask(*second, encode(Fetch{}, 1, 1));
    ASSERT_TRUE(answer) << answer.error().message;
    EXPECT_TRUE(std::holds_alternative<NotNeeded>(*answer));
  }
  EXPECT_TRUE(served.model().ended().empty());
  second->send(encode(CheckIn{10, -1}, 1, -1));  // Waits for the next round.
  served.model().hold(false);
  ASSERT_TRUE(advance_until(*second, [&] { return second->is_deciding(); }));
  EXPECT_EQ(second->header()->round, 2);
}

TEST(FederatedServer, SaysForWhomItWaitsAfterTheLastRound) {
  ServedFederation served(policy_of(1, 1, 1), 1);
  const auto one = served.enrol("phone-1");
  std::promise<std::pair<std::int64_t, Duration>> waiting;
  served.options().rounds.expected_within = 20s;
  served.options().on_waiting = [&](std::int64_t clients, Duration longest) {
    EXPECT_EQ(served.model().ended().size(), 1u);
    waiting.set_value({clients, longest});
  };
  served.start();
  const auto channel = served.connect(one);
  EXPECT_TRUE(ask(*channel, encode(CheckIn{10, -1}, 1, -1)));
  const auto order = ask(*channel, encode(Ready{1}, 1, 1));
  ASSERT_TRUE(order && std::holds_alternative<UploadOrder>(*order));
  const Update update = to_update(contribution_of(one.id, std::get<UploadOrder>(*order).bits, 10));
  EXPECT_TRUE(ask(*channel, encode(update, 1, 1)));
  const auto [clients, longest] = waiting.get_future().get();
  EXPECT_EQ(clients, 1);
  EXPECT_GT(longest, 0s);
  EXPECT_LE(longest, 20s);
  const auto end = ask(*channel, encode(CheckIn{10, -1}, 1, -1));
  EXPECT_TRUE(end && std::holds_alternative<Over>(*end));
  served.join();
}

TEST(FederatedServer, ACancelledClientReturns) {
  ServedFederation served(policy_of(2, 2, 2), 0);
  const auto one = served.enrol("phone-1");
  served.start();
  const auto session = served.session(one);
  std::thread waits([&] {
    const auto task = session->check_in(10, -1);
    ASSERT_FALSE(task);
    EXPECT_EQ(task.error().kind, ErrorKind::aborted);
  });
  session->cancel();
  waits.join();
}

TEST(FederatedServer, StopsInAnyPhaseAfterACheckpoint) {
  ServedFederation served(policy_of(2, 2, 2), 0);
  const auto one = served.enrol("phone-1");
  served.start();
  const auto channel = served.connect(one);
  channel->send(encode(CheckIn{10, -1}, 1, -1));
  ASSERT_TRUE(advance_until(*channel, [&] { return channel->has_sent(); }));
  served.stop();
  EXPECT_EQ(served.model().stops(), 1);
  EXPECT_EQ(closed(*channel).kind, ErrorKind::disconnected);
  auto options = served.client_options(one);
  options.give_up = 10ms;
  const auto away = ClientSession(kNetwork, options, [] { return Duration{}; }).check_in(10, -1);
  ASSERT_FALSE(away);
  EXPECT_EQ(away.error().kind, ErrorKind::disconnected);
}

}  // namespace
}  // namespace gradwire::federated
