#pragma once

#include <cstddef>
#include <vector>

#include "gradwire/schedule/cost/port_network.h"

namespace gradwire::plan {

/// One of the consecutive stages in which a bucket, or a piece of one, is averaged.
struct TrafficStage {
  enum Kind : unsigned char {
    network,    ///< A collective of all ranks.
    processor,  ///< Encoding or decoding on the codec thread.
  } kind = network;
  double seconds = 0;       ///< With nothing else in flight.
  double port_seconds = 0;  ///< network: busy time of the most loaded port.
};

/// The network and the codec thread of a rank, in virtual time. All ranks do the same, so one
/// connection stands for all. The codec thread runs one task at a time: the highest priority first,
/// and among equals the latest stage (exchange/codec_worker.h).
class Traffic {
 public:
  /// Begins a job with these stages; returns its number. Jobs of higher `priority` go first.
  std::size_t start(int priority, std::vector<TrafficStage> stages);

  bool done(std::size_t job) const { return jobs_[job].stage == jobs_[job].stages.size(); }

  /// Advances the time to `time`.
  void advance(double time);
  /// Advances the time until the job is done; returns the time.
  double finish(std::size_t job);

  double now() const { return now_; }
  /// Busy seconds of the port.
  double port_busy() const { return network_.busy(); }
  /// Seconds with any job in flight.
  double in_flight() const { return in_flight_; }

 private:
  struct Job {
    int priority = 0;
    std::vector<TrafficStage> stages;
    std::size_t stage = 0;
  };
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);

  void begin_stage(std::size_t job);
  void end_stage(std::size_t job);
  void choose_task();
  bool goes_before(std::size_t job, std::size_t other) const;
  double next_end() const;
  void end_next();
  void pass(double time);

  double now_ = 0;
  double in_flight_ = 0;
  std::vector<Job> jobs_;
  std::size_t active_ = 0;  ///< Number of jobs in flight.
  schedule::PortNetwork network_;
  std::vector<std::size_t> waiting_;  ///< Jobs for the codec thread, in order of their start.
  std::size_t coding_ = kNone;        ///< The job that it works on,
  double coding_ends_ = schedule::PortNetwork::kNever;  ///< and until when.
};

}  // namespace gradwire::plan
