#pragma once

#include <cstddef>
#include <vector>

namespace gradwire {

/// What a bucket, or a piece of one, does one after the other until its mean is there.
struct TrafficStage {
  enum Kind : unsigned char {
    network,    ///< An operation of all ranks.
    processor,  ///< Encoding or decoding by the one thread that does it.
  } kind = network;
  double seconds = 0;       ///< If nothing else is under way.
  double port_seconds = 0;  ///< network: of them, how long the busiest port is.
};

/// The network and the codec thread of a rank, in virtual time; all ranks do the same. Operations
/// share the port: the more urgent takes as much of it as it can use, port_seconds / seconds, the
/// next of what is left, and so on. The codec thread does one task after the other, the most urgent
/// first, of those the one of the latest stage (gradient/codec_worker.h).
class Traffic {
 public:
  /// A job with these stages begins; returns its number. The larger, the more urgent.
  std::size_t start(int urgency, std::vector<TrafficStage> stages);

  bool done(std::size_t job) const { return jobs_[job].stage == jobs_[job].stages.size(); }

  /// Lets time pass until `time`.
  void advance(double time);
  /// Lets time pass until the job is done, if it is not; returns the time.
  double finish(std::size_t job);

  double now() const { return now_; }
  /// How long the port has been busy.
  double port_busy() const { return port_busy_; }
  /// How long any job was under way.
  double under_way() const { return under_way_; }

 private:
  struct Job {
    int urgency = 0;
    std::vector<TrafficStage> stages;
    std::size_t stage = 0;
    double left = 0;  ///< Seconds of the stage if it had what it can use.
    double speed = 0;
  };

  void begin_stage(std::size_t job);
  void share_port();
  void choose_task();
  double next_end() const;
  void pass(double until);

  double now_ = 0;
  double port_busy_ = 0, port_used_ = 0, under_way_ = 0;
  std::vector<Job> jobs_;
  std::vector<std::size_t> active_;  ///< The most urgent first; of those the first begun.
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);
  std::size_t coding_ = kNone;
};

}  // namespace gradwire
