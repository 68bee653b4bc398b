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
constexpr std::size_t kPhases = 4;
/// How often a client was killed in each phase; memory that processes share.
using Killed = std::array<std::atomic<int>, kPhases>;

/// A client that is killed in a random phase of a third of its rounds.
class MortalClient {
 public:
  MortalClient(const ClientIdentity& identity, const std::filesystem::path& folder,
               std::uint64_t seed, Killed& killed)
      : id_(identity.id),
        session_(kNetwork,
                 {.identity = identity,
                  .server = {},
                  .state = folder / identity.name,
                  .limits = {},
                  .give_up = 20s,
                  .first_pause = 10ms},
                 [] { return Duration{}; }),
        random_(mixed_seed({seed, static_cast<std::uint64_t>(::getpid())})),
        killed_(killed) {}

  /// Until there are no more rounds.
  void run() {
    for (;;) {
      dies_in_ = random_.one_in(3) ? random_.below(kPhases) : kPhases;
      may_die(0);
      const auto checked_in = session_.check_in(10, -1);
      if (!checked_in || std::holds_alternative<Over>(*checked_in)) return;
      if (const auto* back = std::get_if<ComeBack>(&*checked_in)) {
        kNetwork.pause(std::min<Duration>(duration_of(back->seconds), 50ms));
        continue;
      }
      may_die(1);
      const auto trained = session_.ready(5, 0.001);
      may_die(2);
      const auto* order = trained ? std::get_if<UploadOrder>(&*trained) : nullptr;
      if (order == nullptr) continue;
      const auto contribution = contribution_of(id_, order->bits, order->weight, kUpdate);
      may_die(3);
      (void)session_.upload(contribution);
    }
  }

 private:
  void may_die(std::size_t phase) {
    if (dies_in_ != phase) return;
    ++killed_[phase];
    ::kill(::getpid(), SIGKILL);
  }

  ClientId id_;
  ClientSession session_;
  Random random_;
  std::size_t dies_in_ = kPhases;
  Killed& killed_;
};

/// Starts the clients, each as a process, and those that were killed again.
[[noreturn]] void keep_clients_alive(const std::vector<ClientIdentity>& identities,
                                     const std::filesystem::path& folder, std::uint64_t seed,
                                     Killed& killed) {
  set_log_sink([](std::string_view) {});
  std::map<pid_t, std::size_t> processes;
  const auto start = [&](std::size_t i) {
    const pid_t process = ::fork();
    if (process != 0) {
      processes[process] = i;
      return;
    }
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    MortalClient(identities[i], folder, seed, killed).run();
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

/// Memory in use at the end of each round.
class MeasuredModel final : public ServerModel {
 public:
  Work begin(std::int64_t round) override { return model_.begin(round); }
  Demand demand(std::int64_t samples) override { return model_.demand(samples); }
  Bytes bytes_for(std::int64_t version) override { return model_.bytes_for(version); }
  void on_ended(const EndedRound& round) override {
    model_.on_ended(round);
    resident.push_back(resident_bytes());
  }
  void on_stop() override { model_.on_stop(); }

  std::vector<FakeServerModel::Ended> ended() const { return model_.ended(); }
  std::vector<std::int64_t> resident;

 private:
  FakeServerModel model_{kUpdate, 80'000};
};

TEST(FederatedProcesses, AThirdIsKilledInAnyPhaseAndEachRoundEndsByRule) {
  const bool is_long = gradwire::test::from_environment("GRADWIRE_LONG", 0) != 0;
  const int clients = is_long ? 64 : 16;
  const std::int64_t rounds = is_long ? 40 : 12;
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
    keep_clients_alive(identities, folder.path(), gradwire::test::today(), killed);
  }
  set_log_sink([](std::string_view) {});
  MeasuredModel model;
  FederatedServer server(kNetwork, std::move(*listener), enrolment, model,
                         {.rounds = {.policy = {.ask = clients * 3 / 4,
                                                .use = clients / 2,
                                                .least = clients / 8,
                                                .gather = 300ms,
                                                .window = 1s,
                                                .exchange = 300ms,
                                                .update_bits = 16},
                                     .least_pause = 1ms,
                                     .expected_within = 500ms},
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
  EXPECT_GT(committed, 0);
  for (std::size_t phase = 0; phase < kPhases; ++phase) EXPECT_GT(killed[phase], 0) << phase;
  const std::int64_t growth = model.resident.back() - model.resident[model.resident.size() / 2];
  EXPECT_LT(growth, 4 << 20) << "bytes, in the second half of the rounds";
  RecordProperty("committed", committed);
  ::munmap(shared, sizeof(Killed));
}

}  // namespace
}  // namespace gradwire::federated
