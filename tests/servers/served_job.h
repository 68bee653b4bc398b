#pragma once

#include <barrier>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "gradwire/base/clock.h"
#include "gradwire/servers/served_exchange.h"
#include "gradwire/servers/server.h"
#include "tests/support/exchanging.h"
#include "tests/support/local_job.h"

namespace gradwire::servers::test {

using gradwire::test::LocalJob;

/// Values that SGD with momentum steps.
class SteppedValues {
 public:
  explicit SteppedValues(std::size_t count) : values(count), momentum(count) {}

  void step(const float* gradient, double rate) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      momentum[i] = 0.9F * momentum[i] + gradient[i];
      values[i] -= static_cast<float>(0.1 * rate) * momentum[i];
    }
  }

  std::vector<float> values, momentum;
};

/// One server's part of units of float32.
class SteppedShards final : public ServedShards {
 public:
  SteppedShards(const std::vector<exchange::UnitShape>& units, int servers) {
    for (const auto& unit : units)
      parts.emplace_back(unit.count / static_cast<std::size_t>(servers));
  }

  std::size_t units() const override { return parts.size(); }
  LentSpan values(std::size_t unit) override { return gradwire::test::lend(parts[unit].values); }
  std::vector<LentSpan> states_of(std::size_t unit) override {
    return {gradwire::test::lend(parts[unit].momentum)};
  }
  void step(std::size_t unit, const LentSpan& gradient, double rate) override {
    parts[unit].step(static_cast<const float*>(gradient.data), rate);
    rates.push_back(rate);
  }

  void step_all(std::span<const LentSpan> gradients, double rate) override {
    if (before_step_all) before_step_all();
    ServedShards::step_all(gradients, rate);
  }

  std::function<void()> before_step_all;
  std::vector<SteppedValues> parts;
  std::vector<double> rates;  ///< One for each step.
};

/// Workers and servers that are threads of this process, connected by real sockets.
class ServedJob {
 public:
  explicit ServedJob(ServedLayout layout)
      : layout_(std::move(layout)),
        job_(layout_.placement.ranks(), {.failure_domain = FailureDomain::pair}),
        begun_(layout_.placement.workers) {
    for (int server = 0; server < layout_.placement.servers; ++server) {
      shards_.emplace_back(layout_.units, layout_.placement.servers);
    }
  }

  /// Runs `work` on all workers, with servers that end when it has returned on all of them.
  /// Returns what each thread threw, "" for none: of the workers, then of the servers.
  std::vector<std::string> run(const std::function<void(Rank, ServedExchange&)>& work,
                               int pull_every = 1) {
    std::vector<std::function<void()>> bodies;
    for (Rank worker = 0; worker < layout_.placement.workers; ++worker) {
      bodies.emplace_back([this, &work, worker, pull_every] {
        ServedExchange exchange(communicator(worker), layout_, pull_every);
        if (worker == 0 && samples_ > 0) exchange.deal(samples_, epochs_);
        if (samples_ > 0) begun_.arrive_and_wait();
        work(worker, exchange);
        exchange.leave();
      });
    }
    return run_all(std::move(bodies));
  }

  /// run(), where the workers do not use a ServedExchange.
  std::vector<std::string> run_bare(const std::function<void(Rank, Communicator&)>& work) {
    std::vector<std::function<void()>> bodies;
    for (Rank worker = 0; worker < layout_.placement.workers; ++worker) {
      bodies.emplace_back([this, &work, worker] { work(worker, job_.on(worker)); });
    }
    return run_all(std::move(bodies));
  }

  /// Server 0 deals `samples` samples in each epoch.
  void deal(std::int64_t samples, std::int64_t epochs) {
    samples_ = samples;
    epochs_ = epochs;
  }

  void keep_order() { keeps_order_ = true; }

  std::shared_ptr<Communicator> communicator(Rank rank) {
    return gradwire::test::shared(job_.on(rank));
  }
  LocalJob& job() { return job_; }
  const ServedLayout& layout() const { return layout_; }
  std::vector<SteppedShards>& shards() { return shards_; }
  const std::vector<ServerReport>& reports() const { return reports_; }
  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  std::vector<std::string> run_all(std::vector<std::function<void()>> bodies) {
    reports_.resize(shards_.size());
    warnings_.resize(shards_.size());
    for (std::size_t server = 0; server < shards_.size(); ++server) {
      bodies.emplace_back([this, server] { serve(server); });
    }
    std::vector<std::string> errors(bodies.size());
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < bodies.size(); ++i) {
      threads.emplace_back([&, i] {
        try {
          bodies[i]();
        } catch (const std::exception& e) {
          errors[i] = e.what();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    return errors;
  }

  void serve(std::size_t number) {
    Server server(
        communicator(layout_.placement.rank_of_server(static_cast<int>(number))), shards_[number],
        {.placement = layout_.placement,
         .policy = layout_.policy,
         .fingerprint = fingerprint_of(layout_),
         .codecs = std::make_shared<UnitCodecs>(layout_.unit_codecs()),
         .weighs_samples = layout_.weighs_samples,
         .keeps_order = keeps_order_,
         .warn = [this, number](const std::string& text) { warnings_[number] += text + "\n"; }},
        clock_);
    try {
      server.run();
    } catch (const std::exception& e) {
      communicator(layout_.placement.rank_of_server(static_cast<int>(number)))->abort(e.what());
      throw;  // Its process would end.
    }
    reports_[number] = server.report();
  }

  SteadyClock clock_;
  std::int64_t samples_ = 0, epochs_ = 1;
  bool keeps_order_ = false;
  ServedLayout layout_;
  LocalJob job_;
  std::barrier<> begun_;
  std::vector<SteppedShards> shards_;
  std::vector<ServerReport> reports_;
  std::vector<std::string> warnings_;  ///< By server.
};

}  // namespace gradwire::servers::test
