#pragma once

#include <cstddef>
#include <vector>

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

/// The network and the codec thread of a rank, in virtual time; all ranks do the same. Operations
/// share the port by priority. The highest takes as much as it can use, port_seconds / seconds, the
/// next takes from the rest, and so on. The codec thread runs one task at a time: the highest
/// priority first, and among equals the latest stage (exchange/codec_worker.h).
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
  double port_busy() const { return port_busy_; }
  /// Seconds with any job in flight.
  double in_flight() const { return in_flight_; }

 private:
  struct Job {
    int priority = 0;
    std::vector<TrafficStage> stages;
    std::size_t stage = 0;
    double left = 0;  ///< Seconds of the stage at full speed.
    double speed = 0;
  };

  void begin_stage(std::size_t job);
  void share_port();
  void choose_task();
  double next_end() const;
  void pass(double until);

  double now_ = 0;
  double port_busy_ = 0, port_used_ = 0, in_flight_ = 0;
  std::vector<Job> jobs_;
  std::vector<std::size_t> active_;  ///< Highest priority first, then in order of start.
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);
  std::size_t coding_ = kNone;
};

}  // namespace gradwire::plan
