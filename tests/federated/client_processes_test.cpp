#include <array>
#include <atomic>
#include <csignal>
#include <fstream>
#include <memory>
#include <thread>

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gradwire/base/log.h"
#include "gradwire/federated/remote/client_session.h"
#include "gradwire/federated/remote/federated_server.h"
#include "tests/federated/fake_server_model.h"
#include "tests/support/loopback.h"
#include "tests/support/seeds.h"
#include "tests/support/temporary_folder.h"

namespace gradwire::federated {
namespace {

using gradwire::test::kNetwork;
using test::contribution_of;
using test::FakeServerModel;
using namespace std::chrono_literals;

constexpr UpdateShape kUpdate{.elements = 20'000, .metrics = 2};
/// The questions before which a client may be killed, by name.
using Deaths = std::vector<std::string_view>;
const Deaths kPlainDeaths{"check-in", "fetch", "ready", "update"};
const Deaths kSecureDeaths{"check-in", "fetch",         "ready",     "keys",
                           "shares",   "masked update", "signature", "unmasking"};
/// Memory that processes share.
struct Killed {
  std::atomic<std::size_t> chosen = 0;  ///< Deaths that clients will die, or have died.
  std::array<std::atomic<int>, 8>
      before{};  ///< How often clients were killed before each question.
};

/// A client of which a third of the rounds end before a question, each in turn.
class MortalClient {
 public:
  MortalClient(const ClientIdentity& identity, const std::filesystem::path& folder,
               std::uint64_t seed, const Deaths& deaths, Killed& killed)
      : id_(identity.id),
        session_(kNetwork,
                 {.identity = identity,
                  .server = {},
                  .state = folder / identity.name,
                  .limits = {},
                  .secure = {.is_required = deaths.size() > kPlainDeaths.size()},
                  .give_up = 20s,
                  .first_pause = 10ms,
                  .on_question = [this](std::string_view question) { may_die(question); }},
                 [] { return Duration{}; }),
        random_(mixed_seed({seed, static_cast<std::uint64_t>(::getpid())})),
        deaths_(deaths),
        killed_(killed) {}

  /// Until there are no more rounds.
  void run() {
    choose_death();
    for (;;) {
      const auto checked_in = session_.check_in(10, -1);
      if (!checked_in || std::holds_alternative<Over>(*checked_in)) return;
      if (const auto* back = std::get_if<ComeBack>(&*checked_in)) {
        kNetwork.pause(std::min<Duration>(duration_of(back->seconds), 50ms));
        continue;
      }
      const auto trained = session_.ready(5, 0.001, {});
      const auto* order = trained ? std::get_if<UploadOrder>(&*trained) : nullptr;
      if (order == nullptr) continue;
      const auto contribution = contribution_of(id_, order->bits, order->weight, kUpdate);
      (void)session_.upload(contribution);
      choose_death();
    }
  }

 private:
  void choose_death() {
    dies_before_ = random_.one_in(3) ? killed_.chosen++ % deaths_.size() : deaths_.size();
  }
  void may_die(std::string_view question) {
    if (dies_before_ == deaths_.size() || deaths_[dies_before_] != question) return;
    ++killed_.before[dies_before_];
    ::kill(::getpid(), SIGKILL);
  }

  ClientId id_;
  ClientSession session_;
  Random random_;
  const Deaths& deaths_;
  std::size_t dies_before_ = deaths_.size();
  Killed& killed_;
};

/// Starts the clients, each as a process, and those that were killed again.
[[noreturn]] void keep_clients_alive(const std::vector<ClientIdentity>& identities,
                                     const std::filesystem::path& folder, std::uint64_t seed,
                                     const Deaths& deaths, Killed& killed) {
  set_log_sink([](std::string_view) {});
  std::map<pid_t, std::size_t> processes;
  const auto start = [&](std::size_t i) {
    const pid_t process = ::fork();
    if (process != 0) {
      processes[process] = i;
      return;
    }
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    MortalClient(identities[i], folder, seed, deaths, killed).run();
    ::_exit(0);
  };
  for (std::size_t i = 0; i < identities.size(); ++i) start(i);
  while (!processes.empty()) {
    int status = 0;
    const pid_t ended = ::waitpid(-1, &status, 0);
    const std::size_t i = processes[ended];
    processes.erase(ended);
    if (WIFSIGNALED(status)) start(i);
  }
  ::_exit(0);
}

std::int64_t resident_bytes() {
  std::int64_t all = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> all >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

/// Memory in use at the end of each round, and whether all elements of its sum are as the first.
class MeasuredModel final : public ServerModel {
 public:
  Work begin(std::int64_t round) override { return model_.begin(round); }
  Demand demand(std::int64_t samples) override { return model_.demand(samples); }
  Bytes bytes_for(std::int64_t version) override { return model_.bytes_for(version); }
  void on_ended(const EndedRound& round) override {
    model_.on_ended(round);
    resident.push_back(resident_bytes());
    if (round.sum == nullptr) return;
    const auto is_filled_with = [](const ModularVector& segment, std::uint64_t value) {
      for (std::size_t i = 0; i < segment.size(); ++i)
        if (segment[i] != value) return false;
      return true;
    };
    is_uniform = is_uniform && is_filled_with((*round.sum)[0], (*round.sum)[0][0]) &&
                 is_filled_with((*round.sum)[1], round.counted.size());
  }
  void on_stop() override { model_.on_stop(); }

  std::vector<FakeServerModel::Ended> ended() const { return model_.ended(); }
  std::vector<std::int64_t> resident;
  bool is_uniform = true;

 private:
  FakeServerModel model_{kUpdate, 80'000};
};

/// All rounds, whose clients are killed; `secure`: how they mask their updates.
void run_rounds(int clients, std::int64_t rounds, std::optional<SecurePolicy> secure) {
  Deaths deaths = secure ? kSecureDeaths : kPlainDeaths;
  if (secure && !secure->active) std::erase(deaths, "signature");
  const gradwire::test::TemporaryFolder folder;
  auto listener = net::listen_on(gradwire::test::any_loopback_port());
  ASSERT_TRUE(listener);
  Enrolment enrolment(folder / "key", Enrolment::Missing::created);
  std::vector<ClientIdentity> identities;
  for (int i = 0; i < clients; ++i)
    identities.push_back(
        enrolment.enrol(fmt::format("phone-{}", i), net::local_address(*listener).to_string()));
  void* shared =
      ::mmap(nullptr, sizeof(Killed), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(shared, MAP_FAILED);
  Killed& killed = *std::construct_at(static_cast<Killed*>(shared));
  const pid_t nursery = ::fork();
  if (nursery == 0) {
    listener->close();
    keep_clients_alive(identities, folder.path(), gradwire::test::today(), deaths, killed);
  }
  set_log_sink([](std::string_view) {});
  MeasuredModel model;
  RoundPolicy policy{.ask = clients * 3 / 4,
                     .use = clients / 2,
                     .least = clients / 8,
                     .gather = 300ms,
                     .window = 1s,
                     .exchange = 300ms,
                     .update_bits = 16};
  if (secure) policy.secure = SecureRound{.policy = *secure};
  FederatedServer server(
      kNetwork, std::move(*listener), enrolment, model,
      {.rounds = {.policy = policy, .least_pause = 1ms, .expected_within = 500ms},
       .count = rounds,
       .poll = 200ms});
  const auto stop = *kNetwork.make_pair();
  const Status done = server.run(stop.first);
  ::kill(nursery, SIGKILL);
  ::waitpid(nursery, nullptr, 0);
  set_log_sink({});
  ASSERT_TRUE(done) << done.error().message;
  const auto ended = model.ended();
  ASSERT_EQ(ended.size(), static_cast<std::size_t>(rounds));
  int committed = 0;
  for (const auto& round : ended) {
    std::uint64_t sum = 0;
    for (const ClientId id : round.counted) sum += static_cast<std::uint64_t>(10 * (id + 1));
    EXPECT_EQ(round.element, sum) << "round " << round.record.number;
    EXPECT_EQ(round.record.is_abandoned, !round.record.reason.empty());
    committed += round.record.is_abandoned ? 0 : 1;
  }
  EXPECT_TRUE(model.is_uniform);
  EXPECT_GT(committed, 0);
  for (std::size_t i = 0; i < deaths.size(); ++i) EXPECT_GT(killed.before[i], 0) << deaths[i];
  const std::int64_t growth = model.resident.back() - model.resident[model.resident.size() / 2];
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)  // They keep freed memory.
  EXPECT_LT(growth, 4 << 20) << "bytes, in the second half of the rounds";
#else
  testing::Test::RecordProperty("growth", std::to_string(growth));
#endif
  testing::Test::RecordProperty("committed", committed);
  ::munmap(shared, sizeof(Killed));
}

const bool kIsLong = gradwire::test::from_environment("GRADWIRE_LONG", 0) != 0;

TEST(FederatedProcesses, AThirdIsKilledInAnyPhaseAndEachRoundEndsByRule) {
  run_rounds(kIsLong ? 64 : 16, kIsLong ? 40 : 6, std::nullopt);
}

TEST(FederatedProcesses, AThirdIsKilledInAnyPhaseOfSecureAggregation) {
  if (kIsLong) run_rounds(64, 20, SecurePolicy{.neighbours = 31, .threshold = 16});
  // With a check of the server, and a threshold that not every round reaches.
  run_rounds(24, 8, SecurePolicy{.neighbours = 11, .threshold = 8, .active = true});
}

}  // namespace
}  // namespace gradwire::federated
