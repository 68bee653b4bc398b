#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "gradwire/base/error.h"
#include "gradwire/base/types.h"
#include "gradwire/federated/modular_vector.h"
#include "gradwire/federated/round_policy.h"
#include "gradwire/federated/round_record.h"
#include "gradwire/federated/secure/unmasking_server.h"
#include "gradwire/federated/selection.h"

namespace gradwire::federated {

/// Throws Exception(invalid_argument) for numbers that contradict each other.
void check(const RoundPolicy& policy);

/// Elements of what a client uploads.
struct UpdateShape {
  std::size_t elements = 0;  ///< The update's, modulo 2^m.
  std::size_t metrics = 0;   ///< Counts and sums beside it, modulo 2^64.
};

/// Bytes of an upload of this shape, packed.
std::size_t packed_bytes(const UpdateShape& shape, int bits);

/// A client's upload: its update and its metrics.
using Contribution = std::vector<ModularVector>;

/// The bits m of an update's elements, so that the sum of updates with these weights cannot wrap:
/// update_bits + ceil(log2(sum of the weights)).
int sum_bits(int update_bits, std::int64_t weights);

/// An order to a client.
struct Order {
  /// Train, for at most `time`, and say when ready.
  struct Train {
    Duration time{};
  };
  /// Not drawn: check in again for another round.
  struct Again {};
  /// Stop training: enough others are ready, or the round is abandoned.
  struct Stop {};
  /// Upload the update, each element multiplied by `weight`, modulo 2^bits. With `secure`, send
  /// keys first: the update is sent when the ForwardedShares have come, masked.
  struct Upload {
    int bits = 1;
    std::int64_t weight = 1;
    std::optional<SecurePolicy> secure;
  };
  ClientId client = 0;
  /// The last four are of secure aggregation.
  std::variant<Train, Again, Stop, Upload, Roster, ForwardedShares, AliveList, UnmaskRequest> what;
};

/// A client's message in secure aggregation.
using SecureAnswer =
    std::variant<KeyAdvert, SealedShares, MaskedInput, AliveSignature, UnmaskingShares>;

enum class Phase : std::uint8_t {
  selecting,    ///< Clients check in.
  configuring,  ///< Those drawn get the model.
  collecting,   ///< They train, and say when they are ready.
  uploading,    ///< The cohort uploads. In its place, with secure aggregation:
  keys,
  shares,
  masked,
  agreeing,
  unmasking,
  committed,  ///< There is a sum.
  abandoned,  ///< There is none, and nobody has learnt anything.
};
std::string_view name_of(Phase phase);

/// One round of federated learning, as the server sees it: a state machine without clock, threads
/// and network. The simulator, the server and the tests drive the same class: they report what
/// clients do, with the time, deliver the orders, and call on_time() at deadline(). An error of an
/// on_...() function concerns that client alone: it is refused, and the state is as before. Not
/// thread-safe.
class Round {
 public:
  /// `seed` decides who is drawn. Throws as check().
  Round(const RoundPolicy& policy, const UpdateShape& shape, std::int64_t number,
        std::uint64_t seed);

  /// A client could take part. Fails with invalid_argument if it has no samples.
  Status on_check_in(const Candidate& candidate, Time now);
  /// A client that was told to train has the model.
  Status on_configured(ClientId client, Time now);
  /// It has trained, and waits to be told whether its update is needed.
  Status on_ready(ClientId client, Time now);
  /// An update, as ordered; fails with corrupted if it is another vector.
  Status on_update(ClientId client, const Contribution& contribution, Time now);
  /// A message of secure aggregation; fails as UnmaskingServer.
  Status on_secure(ClientId client, const SecureAnswer& answer, Time now);
  /// The client takes no part any more.
  void on_lost(ClientId client, Time now);
  void on_time(Time now);

  /// When to call on_time(); Time::max() if nothing is awaited.
  Time deadline() const { return deadline_; }
  /// The orders since the last call.
  std::vector<Order> take_orders();

  Phase phase() const { return phase_; }
  bool ended() const { return phase_ == Phase::committed || phase_ == Phase::abandoned; }
  std::int64_t number() const { return record_.number; }
  const UpdateShape& shape() const { return shape_; }
  bool is_asked(ClientId client) const { return participants_.contains(client); }

  /// The sum of the updates that count, and its weight; once committed.
  const Contribution& sum() const { return sum_; }
  std::int64_t weight() const { return weight_; }
  /// Whose updates are in the sum, in order of their numbers.
  std::vector<ClientId> counted() const;
  const RoundRecord& record() const { return record_; }

 private:
  enum class State : std::uint8_t { asked, configured, ready, member, counted, stopped, lost };
  struct Participant {
    std::int64_t samples = 1;
    std::int64_t times = 1;
    std::int64_t weight = 0;  ///< Once a member.
    State state = State::asked;
  };

  Result<Participant*> find(ClientId client, std::initializer_list<State> states,
                            std::string_view what);
  void set_state(Participant& participant, State state);
  /// How often participants with this state were drawn.
  std::int64_t places(State state) const { return places_[static_cast<std::size_t>(state)]; }
  std::int64_t still_training() const { return places(State::asked) + places(State::configured); }
  void merge_candidates();
  void select(Time now);
  void form_cohort(Time now);
  void add_to_cohort(Participant& participant);
  void stop(ClientId client, Participant& participant);
  void close_uploads(Time now);
  void begin_secure(int bits, Time now);
  void advance_secure(Time now);
  void close_secure_phase(Time now);
  void order_secure_phase();
  void commit_secure(Time now);
  void check_progress(Time now);
  void abandon(std::string reason, Time now);
  void end(Phase phase, Time now);
  void order(ClientId client, decltype(Order::what) what) { orders_.push_back({client, what}); }

  RoundPolicy policy_;
  UpdateShape shape_;
  std::uint64_t seed_;
  Phase phase_ = Phase::selecting;
  Time deadline_ = Time::max();
  std::vector<Candidate> candidates_;  ///< May have a client several times; its last one counts.
  std::map<ClientId, Participant> participants_;
  std::vector<ClientId> arrivals_;        ///< Those that are ready, in that order.
  std::array<std::int64_t, 7> places_{};  ///< By state.
  std::vector<Order> orders_;
  std::optional<UnmaskingServer> secure_;  ///< Once there is a cohort.
  Contribution sum_;
  std::int64_t weight_ = 0;
  RoundRecord record_;
};

}  // namespace gradwire::federated
