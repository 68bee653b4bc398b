#include "gradwire/servers/mirror.h"

#include <algorithm>
#include <barrier>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/base/clock.h"
#include "gradwire/servers/served_exchange.h"
#include "gradwire/servers/server.h"
#include "gradwire/servers/server_links.h"
#include "tests/support/error_of.h"
#include "tests/support/exchanging.h"
#include "tests/support/local_job.h"

/// Servers that mirror each other, as threads of this process over real sockets.
namespace gradwire::servers::test {
namespace {

using gradwire::test::error_of;
using gradwire::test::lend;
using gradwire::test::LocalJob;
using testing::HasSubstr;

/// Values, and states, that count their updates.
class CountedShards final : public ServedShards {
 public:
  CountedShards(std::size_t units, std::size_t elements, int end_before)
      : values_(units, std::vector<float>(elements)), states_(values_), end_before_(end_before) {}

  std::size_t units() const override { return values_.size(); }
  LentSpan values(std::size_t unit) override { return lend(values_[unit]); }
  std::vector<LentSpan> states_of(std::size_t unit) override { return {lend(states_[unit])}; }
  void step(std::size_t unit, const LentSpan&, double) override {
    if (--end_before_ == 0) throw Exception(ErrorKind::system, "ended by the test");
    for (float& value : values_[unit]) ++value;
    for (float& state : states_[unit]) ++state;
  }

  float updates(std::size_t unit) const { return values_[unit].front(); }
  float states(std::size_t unit) const { return states_[unit].front(); }

 private:
  std::vector<std::vector<float>> values_, states_;
  int end_before_;  ///< Updates before it throws; 0: never.
};

struct MirroredSetting {
  int workers = 3, servers = 2;
  bool beside_workers = false;
  ServerPolicy policy = {.mode = Mode::async, .workers = 3};
  std::int64_t every = 4;
  int steps = 60;
  int lost = 0;         ///< Server.
  int end_before = 70;  ///< Updates.
  int units = 3;
  std::int64_t samples = 0;
};

/// Each worker pushes and pulls all units; one server ends after some updates.
class MirroredJob {
 public:
  explicit MirroredJob(const MirroredSetting& setting)
      : setting_(setting),
        layout_{.placement = {setting.workers, setting.servers, setting.beside_workers},
                .policy = setting.policy,
                .mirror_every = setting.every},
        job_(layout_.placement.ranks(), {.failure_domain = FailureDomain::pair}),
        begun_(setting.workers) {
    for (int unit = 0; unit < setting.units; ++unit) {
      layout_.units.push_back({.count = static_cast<std::size_t>(setting.servers)});
    }
    const auto units = static_cast<std::size_t>(setting.units);
    for (int server = 0; server < setting.servers; ++server) {
      own_.push_back(std::make_unique<CountedShards>(
          units, 1, server == setting.lost ? setting.end_before : 0));
      mirrored_.push_back(std::make_unique<CountedShards>(units, 1, 0));
    }
  }

  /// Returns what each worker threw, then what each server and each standby did.
  std::vector<std::string> run() {
    std::vector<std::function<void()>> bodies;
    for (Rank worker = 0; worker < setting_.workers; ++worker) {
      bodies.emplace_back([this, worker] { work(worker); });
    }
    for (int server = 0; server < setting_.servers; ++server) {
      bodies.emplace_back([this, server] { serve(server); });
      bodies.emplace_back([this, server] { stand_by(server); });
    }
    std::vector<std::string> errors(bodies.size());
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < bodies.size(); ++i) {
      threads.emplace_back([&errors, &bodies, i] {
        const std::string error = error_of(bodies[i]);
        errors[i] = error == "no error" ? "" : error;
      });
    }
    for (std::thread& thread : threads) thread.join();
    return errors;
  }

  /// The shards of a server, or of the one that has taken its place.
  CountedShards& shards(int server) {
    const auto i = static_cast<std::size_t>(server);
    return server == setting_.lost && setting_.end_before > 0 ? *mirrored_[i] : *own_[i];
  }
  const ServerReport& report() const { return report_; }
  std::int64_t applied() const { return applied_; }

 private:
  void work(Rank worker) {
    ServedExchange exchange(shared(worker), layout_);
    if (worker == 0 && setting_.samples > 0) exchange.deal(setting_.samples, 1);
    begun_.arrive_and_wait();
    if (setting_.samples > 0) {
      train_on_dealt_samples(exchange);
    } else {
      for (int number = 0; number < setting_.steps; ++number) step(exchange);
    }
    exchange.meet();
    if (worker == 0) {
      report_ = exchange.report();
      if (setting_.samples > 0) applied_ = exchange.progress().applied();
    }
    exchange.meet();
    exchange.leave();
  }

  /// Ends when all samples have been applied.
  void train_on_dealt_samples(ServedExchange& exchange) {
    for (;;) {
      const Deal batch = exchange.take(2);
      if (batch.count == 0) {
        if (exchange.meet().applied == setting_.samples) return;
        continue;
      }
      exchange.set_batches(1);
      step(exchange);
    }
  }

  void step(ServedExchange& exchange) {
    const std::size_t units = layout_.units.size();
    std::vector<std::vector<float>> gradients, values;
    for (const auto& unit : layout_.units) {
      gradients.emplace_back(unit.count);
      values.emplace_back(unit.count);
    }
    std::vector<Work> pulled;
    for (std::size_t unit = 0; unit < units; ++unit) {
      exchange.reduce_scatter(unit, lend(gradients[unit]), {}, 0).wait();
      pulled.push_back(exchange.all_gather(unit, {}, lend(values[unit]), 0));
    }
    for (const Work& each : pulled) each.wait();
  }

  void serve(int number) {
    const Rank rank = layout_.placement.rank_of_server(number);
    Server* dealing = nullptr;
    MirroredShards shards(
        *own_[static_cast<std::size_t>(number)],
        {.pairs = shared(rank),
         .mirror = layout_.placement.rank_of_server(layout_.placement.mirror_of(number)),
         .every = layout_.mirror_every,
         .dealing = [&dealing] { return dealing->dealing(); }});
    Server server(shared(rank), shards, options(), clock_);
    dealing = &server;
    try {
      server.run();
      shards.end();
    } catch (const std::exception& e) {
      job_.on(rank).leave_at_once(e.what());  // Its process would do so.
      throw;
    }
  }

  void stand_by(int number) {
    const Placement& placement = layout_.placement;
    const Rank rank = placement.rank_of_server(placement.mirror_of(number));
    CountedShards& shards = *mirrored_[static_cast<std::size_t>(number)];
    Mirror mirror(shared(rank), placement.rank_of_server(number), shards);
    ServerOptions standing_by = options();
    standing_by.adopt = [&mirror] { return mirror.adopt(); };
    Server(shared(rank), shards, standing_by, clock_).run();
  }

  ServerOptions options() const {
    return {.placement = layout_.placement,
            .policy = layout_.policy,
            .fingerprint = fingerprint_of(layout_)};
  }
  std::shared_ptr<Communicator> shared(Rank rank) { return gradwire::test::shared(job_.on(rank)); }

  MirroredSetting setting_;
  ServedLayout layout_;
  LocalJob job_;
  std::barrier<> begun_;
  SteadyClock clock_;
  std::vector<std::unique_ptr<CountedShards>> own_, mirrored_;
  ServerReport report_;
  std::int64_t applied_ = 0;
};

/// Expects errors of one server, and of the standby on its rank, only: `errors` are the workers',
/// then each server's and its standby's.
void expect_one_lost(const MirroredSetting& setting, const std::vector<std::string>& errors) {
  const int other = Placement{.servers = setting.servers}.mirrored_by(setting.lost);
  for (std::size_t i = 0; i < errors.size(); ++i) {
    const int number = static_cast<int>(i) - setting.workers;
    const bool is_lost = number == 2 * setting.lost;
    const bool is_beside = number == 2 * other + 1;
    EXPECT_THAT(errors[i], HasSubstr(is_lost ? "ended by the test" : "")) << i;
    EXPECT_EQ(errors[i].empty(), !is_lost && !is_beside) << i << ": " << errors[i];
  }
}

TEST(MirroredServers, ServeOnAfterOneIsLost) {
  for (const ServerPolicy& policy :
       {ServerPolicy{.mode = Mode::async, .workers = 3},
        ServerPolicy{.mode = Mode::ssp, .workers = 3, .staleness = 2}}) {
    for (const std::int64_t every : {1, 2, 5, 1000}) {
      for (const int end_before : {1, 2, 60, 61, 100}) {
        const MirroredSetting setting{.policy = policy, .every = every, .end_before = end_before};
        SCOPED_TRACE(mode_text(policy) + " " + std::to_string(every) + " " +
                     std::to_string(end_before));
        MirroredJob job(setting);
        expect_one_lost(setting, job.run());
        const float all = static_cast<float>(setting.workers * setting.steps);
        std::int64_t applied = 0;
        for (std::size_t unit = 0; unit < 3; ++unit) {
          EXPECT_EQ(job.shards(1).updates(unit), all);
          EXPECT_EQ(job.shards(0).updates(unit), job.shards(0).states(unit));
          applied += static_cast<std::int64_t>(job.shards(0).updates(unit));
        }
        const ServerReport& report = job.report();
        EXPECT_LE(report.lost_updates, 3 * every);
        EXPECT_LE(report.lost_updates, end_before);
        EXPECT_GE(report.lost_gradients, 1) << "that which the server ended with";
        const auto pushed = 3 * static_cast<std::int64_t>(all);
        EXPECT_LE(applied + report.lost_updates, pushed);
        EXPECT_GE(applied + report.lost_updates + report.lost_gradients, pushed);
      }
    }
  }
}

TEST(MirroredServers, AreNotUsedIfNoneIsLost) {
  const MirroredSetting setting{.servers = 3, .end_before = 0};
  MirroredJob job(setting);
  gradwire::test::expect_no_errors(job.run());
  for (int server = 0; server < 3; ++server) {
    for (std::size_t unit = 0; unit < 3; ++unit) {
      EXPECT_EQ(job.shards(server).updates(unit), setting.workers * setting.steps);
    }
  }
  EXPECT_EQ(job.report().lost_updates, 0);
}

/// Samples that server 0 had dealt, and whose gradients its mirror does not know of, are dealt
/// again.
TEST(MirroredServers, DealTheSamplesThatAreLeft) {
  for (const int lost : {0, 1}) {
    const MirroredSetting setting{.lost = lost, .samples = 300};
    MirroredJob job(setting);
    expect_one_lost(setting, job.run());
    EXPECT_EQ(job.applied(), 300);
  }
}

TEST(MirroredServers, EndTheJobIfTheMirrorIsLostToo) {
  const ServedLayout layout{.placement = {1, 2, false},
                            .policy = {.mode = Mode::async, .workers = 1},
                            .units = {{.count = 2}},
                            .mirror_every = 1};
  LocalJob job(3, {.failure_domain = FailureDomain::pair});
  ServerLinks links(gradwire::test::shared(job.on(0)),
                    {.placement = layout.placement,
                     .mirrors = true,
                     .patience = Duration(1),
                     .known = [](int) { return std::vector<std::int64_t>(2); },
                     .forget = [](int) {}});
  const auto replaced = [&] {
    return error_of([&] {
      links.replace(0, links.of(0), {ErrorKind::disconnected, "the link to it broke"});
    });
  };
  EXPECT_THAT(replaced(), HasSubstr("server 0 is lost (the link to it broke), and the server that "
                                    "mirrors it does not stand in for it: "));
  job.on(2).leave_at_once("after a test");
  EXPECT_THAT(replaced(), HasSubstr("does not stand in for it"));
}

TEST(MirroredServers, AreRefusedWithWhatExcludesThem) {
  const auto refusal = [](const ServedLayout& layout) { return error_of([&] { check(layout); }); };
  const ServerPolicy async{.mode = Mode::async};
  EXPECT_THAT(refusal({.placement = {1, 2, false}, .mirror_every = 1}), HasSubstr("mode sync"));
  EXPECT_THAT(refusal({.placement = {1, 1, false}, .policy = async, .mirror_every = 1}),
              HasSubstr("one server"));
  EXPECT_THAT(refusal({.placement = {2, 2, false, 2}, .policy = async, .mirror_every = 1}),
              HasSubstr("groups"));
  EXPECT_THAT(refusal({.placement = {1, 2, false},
                       .policy = async,
                       .codecs = {.push = "int8"},
                       .mirror_every = 1}),
              HasSubstr("codecs"));
  EXPECT_THAT(refusal({.placement = {1, 2, false}, .policy = async, .mirror_every = -1}),
              HasSubstr("mirror_every is -1"));
  EXPECT_EQ(refusal({.placement = {1, 2, false}, .policy = async, .mirror_every = 1}), "no error");
}

}  // namespace
}  // namespace gradwire::servers::test
