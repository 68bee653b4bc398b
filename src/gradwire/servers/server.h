#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "gradwire/base/clock.h"
#include "gradwire/base/lent_span.h"
#include "gradwire/base/work.h"
#include "gradwire/comm/communicator.h"
#include "gradwire/servers/event_queue.h"
#include "gradwire/servers/messages.h"
#include "gradwire/servers/mirror.h"
#include "gradwire/servers/order_recorder.h"
#include "gradwire/servers/sample_dealer.h"
#include "gradwire/servers/served_shards.h"
#include "gradwire/servers/server_core.h"
#include "gradwire/servers/server_policy.h"
#include "gradwire/servers/server_report.h"
#include "gradwire/servers/unit_codecs.h"

namespace gradwire::servers {

/// Replaces the first gradient by the mean of all, which are added in this order, and returns it.
LentSpan take_mean(std::span<const LentSpan> gradients);

struct ServerOptions {
  Placement placement;
  ServerPolicy policy;
  std::uint64_t fingerprint = 0;             ///< fingerprint_of() the workers' layout.
  std::shared_ptr<const UnitCodecs> codecs;  ///< ServedLayout::unit_codecs(); null: none.
  /// Weighs each gradient by its samples: those of a step among each other, and a step of one
  /// gradient by the mean of those before it.
  bool weighs_samples = false;
  bool keeps_order = false;                      ///< Keeps what workers fetch by order().
  std::function<void(const std::string&)> warn;  ///< Called once for each worker that is lost.
  /// Present if this server stands in for another one. Returns the state of that (Mirror::adopt());
  /// called when the first worker greets this server. All tags are offset by kMirrorTags.
  std::function<Mirror::Adopted()> adopt;
};

/// A parameter server: receives the workers' gradients, applies them by the rules of ServerCore,
/// and sends values. Memory: its parts of the values and of the optimizer, a copy of the values in
/// flight, and at most one gradient of each unit and worker.
///
/// A worker that sends anything but what ServedExchange does is refused: its messages fail, with
/// the reason, and the others go on without it, as without a lost one.
class Server final : private ShardStore {
 public:
  /// `pairs`: of failure domain pair; this rank serves. `shards` and `clock` must outlive this.
  Server(std::shared_ptr<Communicator> pairs, ServedShards& shards, const ServerOptions& options,
         const Clock& clock);

  /// Serves until all workers have left or are lost. Throws what ServedShards throws, and Exception
  /// if the communicator as a whole fails, or if no worker has left: all are lost.
  void run();

  /// After run().
  ServerReport report() const;
  /// The samples that this server deals, if it does. For ServedShards, while they are stepped.
  std::optional<Dealing> dealing() const;

 private:
  using Buffer = std::vector<std::byte>;
  /// An operation with a worker has ended: of a unit's gradient or values, or else a request.
  struct Event {
    static constexpr std::size_t kRequest = static_cast<std::size_t>(-1);
    Rank worker = 0;
    std::size_t unit = kRequest;
    Work work;
  };
  struct Worker {
    Request request;                    ///< Memory of the next one.
    std::vector<bool> arrives;          ///< By unit: its gradient or its values are being received.
    std::vector<Request> announced;     ///< By unit: the request that they belong to.
    std::vector<GradientId> gradients;  ///< By unit: where they are received.
    std::vector<Buffer> encoded;        ///< By unit: of the gradient, if it is.
    Pace pace;                          ///< When it last met the others.
    bool greeted = false;
    bool meets = false;  ///< Waits for the others.
    bool leaves = false;
    bool gone = false;
  };
  class WorkerLost;

  void await_request(Rank worker);
  void await_payload(Rank worker, std::size_t unit, const LentSpan& memory);
  void report_end(const Work& work, Rank worker, std::size_t unit);
  static void wait_for(const Work& message);
  void handle(const Event& event);
  void on_request(Rank worker, const Request& request);
  void on_meet(Rank worker, const Request& request);
  void on_payload(Rank worker, std::size_t unit);
  void receive(Rank worker, const Request& request);
  void begin_dealing(Rank worker, const Request& request);
  void greet(Rank worker, const Request& request);
  void take_over();
  void join(Rank worker, const Request& request);
  int tag(int of_primary) const { return of_primary + (options_.adopt ? kMirrorTags : 0); }
  void exchange_states(Rank worker, const Request& request);
  std::size_t check_unit(Rank worker, const Request& request) const;
  template <class Condition>
  bool all_members(Rank worker, Condition condition) const;
  void remove_group(Rank worker, const std::string& why);
  void remove(Rank worker, const std::string& why);
  void settle(Rank worker);
  Time next_grace_end();
  void end_graces();
  void end_meeting();
  Rank first_worker() const;

  void send_answers();
  void send_all_values(Rank worker);
  void send_values(Rank worker, const Answer& answer, bool encoded);
  void send_batch(Rank worker, std::int64_t wanted);
  void reply(Rank worker, std::vector<std::int64_t> integers);
  std::shared_ptr<const Buffer> snapshot(std::size_t unit, bool encoded);
  UnitCodecs::Pointer codec_of(const Request& push) const;
  void decode(Rank worker, const Request& push);
  void log(const Applied& gradient);
  void send_order(Rank worker, const Request& request);

  void apply(std::size_t unit, std::span<const GradientId> gradients, double factor) override;
  void drop(GradientId gradient) override;
  LentSpan mean_of(std::span<const GradientId> gradients);
  double weigh(std::size_t unit, std::span<const GradientId> gradients);
  void apply_all(double factor);
  void conclude(std::size_t unit, std::span<const GradientId> gradients);
  LentSpan gradient_memory(GradientId gradient);
  GradientId take_buffer(std::size_t unit);

  std::shared_ptr<Communicator> pairs_;
  ServedShards& shards_;
  ServerOptions options_;
  const Clock& clock_;
  std::unique_ptr<OrderRecorder> order_;  ///< Null: no worker will ask.
  ServerCore core_;
  std::optional<SampleDealer> dealer_;
  Dealing dealing_;  ///< The samples and epochs of the dealer.
  /// In place of a lost server: by unit, the version that it has left, and updates after that.
  std::vector<std::int64_t> left_versions_, lost_updates_;
  std::int64_t lost_gradients_ = 0;            ///< On their way to the lost server.
  std::int64_t stop_ = 0;                      ///< Deal::stop.
  std::shared_ptr<EventQueue<Event>> events_;  ///< Outlives this if need be.
  std::vector<Worker> workers_;
  int connected_;
  bool left_ = false;      ///< A worker has left.
  std::string lost_last_;  ///< Why the last lost worker was lost.

  /// Memory of a gradient that is being received, or waits for its step.
  struct Gradient {
    std::size_t unit = 0;
    Buffer memory;
    bool used = false;
    double samples = 1;
    std::vector<Deal> batches;  ///< The samples that it is of; of the last unit only.
  };
  std::vector<Gradient> gradients_;             ///< By GradientId.
  std::vector<std::vector<GradientId>> whole_;  ///< By unit: those of a whole step, so far.
  /// Copies of a unit's present version, or null.
  struct Snapshot {
    std::shared_ptr<Buffer> plain, encoded;
  };
  std::vector<Snapshot> snapshots_;  ///< By unit.
  std::vector<Time> grace_ends_;     ///< By unit: of the step that waits for more; or Time::max().
  struct Samples {
    double sum = 0;
    std::int64_t gradients = 0;
  };
  std::vector<Samples> samples_;  ///< By unit: those of single gradients that were applied.
  Duration busy_{};
  Time first_{};  ///< When the first gradient arrived.
};

}  // namespace gradwire::servers
