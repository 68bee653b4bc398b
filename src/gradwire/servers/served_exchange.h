#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "gradwire/comm/communicator.h"
#include "gradwire/exchange/error_feedback.h"
#include "gradwire/exchange/exchange.h"
#include "gradwire/exchange/unit_stages.h"
#include "gradwire/servers/messages.h"
#include "gradwire/servers/order_log.h"
#include "gradwire/servers/sample_dealer.h"
#include "gradwire/servers/server_links.h"
#include "gradwire/servers/server_policy.h"
#include "gradwire/servers/server_report.h"
#include "gradwire/servers/unit_codecs.h"

namespace gradwire::servers {

/// The settings that workers and servers have in common.
struct ServedLayout {
  Placement placement;
  ServerPolicy policy;
  /// Each unit has as many elements as a multiple of Placement::parts_of_unit().
  std::vector<exchange::UnitShape> units;
  CodecSettings codecs = {};
  /// If positive, each server mirrors the previous one (Placement::mirror_of). The loss of a server
  /// then costs at most this number of updates of each unit (MirroredShards). Incompatible with
  /// mode sync, groups and codecs.
  std::int64_t mirror_every = 0;
  bool weighs_samples = false;  ///< ServerOptions::weighs_samples.

  UnitCodecs unit_codecs() const { return {codecs, units, placement.members}; }
};
/// A number that differs between layouts.
std::uint64_t fingerprint_of(const ServedLayout& layout);
/// Throws Exception(invalid_argument) for a policy that there is not, and for mirrors with what
/// excludes them.
void check(const ServedLayout& layout);

/// A worker's side: the exchange of sharded training (step::StepPolicy::stage 1) whose shards are
/// on servers. reduce_scatter() pushes a gradient, each server's part to it, and all_gather() pulls
/// the values that the servers' optimizers have made of it. Both ignore `shard`. In mode sync, a
/// pull returns when all workers have pushed. With groups of workers (Placement), both are of this
/// worker's slice of the unit only, which is their `data` (GroupedExchange).
///
/// With mirrors, the mirror of a lost server replaces it, and starts new clocks and versions. The
/// new server does not apply gradients that the lost one had not answered. It deals again samples
/// whose gradients its copy does not contain.
///
/// A pushed unit must be gathered before it is pushed again: otherwise reduce_scatter() throws
/// Exception(invalid_argument). Errors name the server. Destroy it before the communicator; leave()
/// first, or the servers take this worker for lost.
class ServedExchange final : public exchange::Exchange {
 public:
  /// The failure domain of `pairs` is a pair, and this rank is a worker. Of `pull_every` gathers of
  /// a unit one pulls (n_fetch of Downpour); the others leave the values as they are. Greets the
  /// servers. Throws Exception: what communication throws, among it the reason of a server that
  /// refuses this worker.
  ServedExchange(std::shared_ptr<Communicator> pairs, ServedLayout layout, int pull_every = 1);
  ~ServedExchange() override;

  /// Replaces the values on the servers. Before any worker pushes; then a barrier must follow.
  void load(std::size_t unit, const LentSpan& values);
  /// Replaces the values of all units by those of the servers, whatever the mode: each server's as
  /// they are at one moment. Call when no push and no gather is in flight.
  void pull(std::span<const LentSpan> values);
  /// Waits until all workers that are not lost have called this, and servers have applied what they
  /// have pushed. While this worker waits, others do not wait for its gradients. Then all go on
  /// with the same clock; in mode sync call pull() next. Calls as pull().
  Meeting meet();
  /// Sets what the next meet() tells the servers, for ServerReport::paces.
  void set_pace(const Pace& pace) { pace_ = pace; }
  /// Number of gradients of each unit that this worker has pushed.
  std::int64_t pushes() const { return units_.front().pushes; }
  /// Makes server 0 deal `samples` samples in each of `epochs` epochs, but for those that were
  /// applied before. On one worker, before any calls take().
  void deal(std::int64_t samples, std::int64_t epochs, DealProgress progress = {});
  /// Returns the next batch of at most `count` samples, which server 0 deals. If `stop` is not 0,
  /// this and all following batches of all workers have it as Deal::stop.
  Deal take(std::int64_t count, std::int64_t stop = 0);
  /// Returns which samples have been applied.
  DealProgress progress();
  /// Copies the states of a server's optimizers, as they are at one moment, into `states`: as many
  /// and as large ones as ServedShards::states().
  void fetch_states(int server, std::span<const LentSpan> states);
  /// Replaces the states of a server's optimizers. Before any worker pushes; then a barrier must
  /// follow.
  void load_states(int server, std::span<const LentSpan> states);
  /// Returns the number of updates of each server's part of each unit, as servers number them, with
  /// those of earlier runs.
  std::vector<std::vector<std::int64_t>> versions();
  /// Makes all servers go on from these, by unit. On one worker, before any pushes; then all must
  /// meet() and pull().
  void begin_at(const std::vector<std::int64_t>& versions);
  /// Number of units as servers number them.
  std::size_t slices() const { return number_of(units_.size(), 0); }
  /// Sets the number of dealt batches of which the following pushes are the gradients; at first 0.
  void set_batches(std::int64_t batches) {
    now_.batches = batches;
    now_.dealer = dealer();
  }
  /// How often another server has taken over the dealing: it does not know of the batches that this
  /// worker had then.
  int dealer() const { return links_.of(0).generation; }
  /// Sets the factor on the learning rate of the following pushes.
  void set_rate(double rate) { now_.rate = rate; }
  /// Sets the samples of the following pushes (ServerOptions::weighs_samples); at first 1.
  void set_samples(double samples) { now_.samples = samples; }
  /// Sets a further factor on that of ServerPolicy::asynchronous units; at first 1.
  void set_asynchronous_factor(double factor) { asynchronous_factor_ = factor; }
  /// Sets the checksum of the random state with which the following pushes are computed.
  void set_random(std::uint32_t checksum) { now_.random = checksum; }
  /// Returns the order of what a server has done so far (ServerOptions::keeps_order), and the
  /// checksums of its values.
  std::vector<OrderRecord> order(int server);
  /// Returns what all servers have done so far.
  ServerReport report();
  const Placement& placement() const { return layout_.placement; }
  const ServerPolicy& policy() const { return layout_.policy; }
  /// Tells the servers that this worker ends. Waits for nothing but earlier pushes.
  void leave();
  /// For a decorator that pushes a unit later than it is asked to: gives that push the batches and
  /// the rate of this moment.
  void announce(std::size_t unit) { units_[unit].announced = now_; }
  bool has_codecs() const { return layout_.codecs.any(); }
  /// True if the next all_gather() of the unit pulls.
  bool pulls(std::size_t unit) const { return units_[unit].owed; }

  Work all_reduce(std::size_t unit, LentSpan data, int priority) override;
  Work reduce_scatter(std::size_t unit, LentSpan data, LentSpan shard, int priority) override;
  Work all_gather(std::size_t unit, LentConstSpan shard, LentSpan data, int priority) override;
  exchange::ExchangeTraits traits() const override;
  /// The residuals of error feedback, in mode sync with all gradients. Otherwise a worker's are
  /// lost with it.
  std::vector<State> state() override;
  void load_state(const std::vector<SavedState>& saved) override;
  std::string describe() const override;

 private:
  /// A server's part of this worker's slice of a unit.
  struct Part {
    Request request;
    Reply reply;  ///< With the version of the values that this worker has.
    std::int64_t clock = 0;
    ServerLinks::Link link;       ///< The last push took it.
    std::int64_t unanswered = 0;  ///< Pushes.
  };
  /// A gradient, as its servers must know it.
  struct Gradient {
    std::int64_t batches = 0;
    double rate = 1;
    double samples = 1;
    std::int64_t random = 0;
    int dealer = 0;  ///< The server that dealt the batches, as dealer().
  };
  using Buffer = std::vector<std::byte>;
  struct Unit {
    std::vector<Part> parts;                              ///< By server.
    std::vector<std::shared_ptr<Buffer>> pushed, pulled;  ///< By server: encoded parts.
    std::optional<Gradient> announced;
    std::int64_t pushes = 0;
    Work push, pull;
    bool owed = false;      ///< The servers answer the last push, and nothing receives that yet.
    bool answered = false;  ///< The replies have versions that are not yet taken.
  };

  int servers() const { return layout_.placement.servers; }
  void check_idle() const;
  void require_pulled(const Unit& unit) const;
  void take_replies(std::size_t unit);
  void check_slice(std::size_t unit, const LentSpan& data) const;
  std::size_t number_of(std::size_t unit, int member) const;
  std::size_t own_number(std::size_t unit) const;
  Work receive(Unit& pulled, std::size_t unit, const LentSpan& data, int priority);
  void receive_all(std::size_t unit, const LentSpan& whole);
  bool is_coded(std::size_t unit) const { return codecs_.is_coded(own_number(unit)); }
  void encode(std::size_t unit, const LentSpan& data);
  Work send(std::size_t unit, const LentSpan& data, int priority);
  Work send_encoded(std::size_t unit, const LentSpan& data, int priority);
  Work receive_encoded(Unit& pulled, std::size_t unit, const LentSpan& data, int priority);
  void decode(std::size_t unit, const LentSpan& data);
  bool has_mirrors() const { return layout_.mirror_every > 0; }
  void compose(std::size_t unit, const Gradient& gradient, bool pull);
  Work send_to_each(std::size_t unit, const LentSpan& data, int priority);
  Work receive_from_each(std::size_t unit, const LentSpan& data, int priority);
  void receive_part(std::size_t unit, int server, const LentSpan& part, int priority);
  void read_part(std::size_t unit, int server, const LentSpan& part);
  void pull_from_each(std::span<const LentSpan> values);
  void note_answer(std::size_t unit, int server);
  std::vector<std::int64_t> known_of(int server) const;
  void forget(int server);

  std::shared_ptr<Communicator> pairs_;
  ServedLayout layout_;
  int pull_every_;
  ServerLinks links_;
  std::vector<Unit> units_;
  UnitCodecs codecs_;
  exchange::ErrorFeedback feedback_;  ///< By unit: of this worker's slice.
  /// Pushes and pulls, with codecs or with mirrors; otherwise null.
  std::unique_ptr<exchange::UnitStages> encoding_, decoding_;
  double asynchronous_factor_ = 1;
  Pace pace_;
  Gradient now_;  ///< The following pushes have it.
};

}  // namespace gradwire::servers
