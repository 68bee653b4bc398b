#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gradwire/base/random.h"
#include "gradwire/federated/fairness.h"
#include "gradwire/federated/remote/certificate.h"
#include "gradwire/federated/remote/messages.h"
#include "gradwire/federated/round.h"

namespace gradwire::federated {

using ClientLedger = std::map<ClientId, ClientRecord>;

/// A round that has ended.
struct EndedRound {
  RoundRecord record;
  const Contribution* sum = nullptr;  ///< Null if it was abandoned.
  std::int64_t weight = 0;
  std::vector<ClientId> counted;
  ClientLedger ledger;
};

/// The owner of the model that a FederatedServer serves. No two calls are concurrent.
class ServerModel {
 public:
  virtual ~ServerModel() = default;

  /// Returns what clients would train, as JSON of at most kMaxTextBytes: for those that ask before
  /// they check in. Called once.
  virtual std::string description() { return "{}"; }

  struct Work {
    std::int64_t version = 0;  ///< The model's.
    std::string plan;          ///< JSON for the clients, at most kMaxTextBytes.
    UpdateShape shape;
    int update_bits = 0;  ///< RoundPolicy::update_bits from this round on; 0: as before.
  };
  virtual Work begin(std::int64_t round) = 0;

  struct Demand {
    std::int64_t memory_bytes = 0, steps = 0;
  };
  /// Needs of the work on a client with so many samples.
  virtual Demand demand(std::int64_t samples) = 0;

  struct Bytes {
    std::int64_t base_version = -1;  ///< They are the difference to it; -1: the model.
    Blob model;
  };
  /// For a client that has the model of `version`, -1: none. Called twice for each client.
  virtual Bytes bytes_for(std::int64_t version) = 0;

  /// On a thread of its own; until it returns, clients wait for the next round.
  virtual void on_ended(const EndedRound& round) = 0;
  /// Returns true if the round that has ended is the last one.
  virtual bool is_complete() { return false; }
  /// The server stops, and may have given up a round.
  virtual void on_stop() = 0;
};

/// Answers the questions of clients by the rules of a Round, one round after the other, without
/// sockets, clock and threads. Each client has a mailbox with its last order, which stays until the
/// next round: who asks the same again, is answered the same, and counts once. Not thread-safe.
class Coordinator {
 public:
  struct Options {
    RoundPolicy policy;
    std::int64_t first_round = 1;
    std::uint64_t seed = 1;
    ClientLedger ledger;                               ///< After earlier rounds.
    std::int64_t max_samples = std::int64_t{1} << 24;  ///< At most, for a client.
    Duration least_pause = std::chrono::seconds(1);    ///< Before a client comes back.
    /// A client is expected to ask again within this time, if it was not told another one.
    Duration expected_within = std::chrono::seconds(40);
    /// Enrolled clients' certificates, for their neighbours; with SecurePolicy::active.
    std::function<std::optional<Certificate>(ClientId)> certificates;
  };

  /// `name_of` names clients in the log. `model` must outlive this. Throws
  /// Exception(invalid_argument) as check(policy), or if sums could have more than 64 bits.
  Coordinator(Options options, ServerModel& model, std::function<std::string(ClientId)> name_of);

  void begin_round(Time now);

  /// The answer to a client; nullopt if it must wait. Its process is known by `instance`: another
  /// one with the same identity is turned away as long as the first is expected.
  std::optional<Answer> reply(ClientId id, std::uint64_t instance, std::int64_t round,
                              const Question& question, Time now);
  /// Clients that may have an answer since the last call.
  std::vector<ClientId> take_answerable() { return std::exchange(answerable_, {}); }
  /// For a client that would have to wait, where it cannot.
  ComeBack come_back(Time now);

  void on_task_sent(ClientId id, Time now);
  /// A client that waited for an answer has closed its connection.
  void on_gone(ClientId id, Time now);
  /// Round::deadline().
  Time deadline() const { return round_ ? round_->deadline() : Time::max(); }
  void on_time(Time now);
  void add_bytes(ClientId id, std::uint64_t up, std::uint64_t down);

  /// The largest body of a question that is worth keeping.
  std::size_t limit_of(ClientId id, const MessageHeader& header);

  /// Returns true once the round has ended; next are ended(), which refers to this, and
  /// begin_round() or finish().
  bool has_ended() const { return round_ && round_->ended(); }
  EndedRound ended();
  /// Ends the rounds. Clients that ask are told so; none is expected after `expected_within`.
  void finish(Time now);
  /// The time until which clients are expected that do not know of the end, and their number.
  Time expected_until() const;
  std::int64_t expected_clients(Time now) const;

  std::int64_t round_number() const { return number_; }
  const ClientLedger& ledger() const { return ledger_; }
  /// Says it in the log, once for each client and kind of error.
  void note(ClientId id, const Error& error);

 private:
  struct Client {
    std::uint64_t instance = 0;  ///< The process that has the identity,
    Time until{};                ///< until then.
    std::int64_t checked_in = -1;
    std::int64_t version = -1, samples = 0;
    std::int64_t round = -1;  ///< The order's.
    std::optional<decltype(Order::what)> order;
    Time order_at{};
    bool is_ready = false;
    int bits = 1;                ///< Those of an element of its update, once ordered.
    std::int64_t uploaded = -1;  ///< The last round in which its update was taken.
    std::uint8_t sent = 0;       ///< Kind of its last secure message that was taken in the round.
  };

  using Reply = std::optional<Answer>;
  Reply reply_to(ClientId id, std::int64_t round, const CheckIn& question, Time now);
  Reply reply_to(ClientId id, std::int64_t round, const Fetch& question, Time now);
  Reply reply_to(ClientId id, std::int64_t round, const Ready& question, Time now);
  Reply reply_to(ClientId id, std::int64_t round, const Update& question, Time now);
  Reply reply_to(ClientId id, std::int64_t round, const Leave& question, Time now);
  Reply reply_to(ClientId id, std::int64_t round, const SecureMessage& question, Time now);
  Reply reply_to(ClientId id, std::int64_t round, const MaskedUpdate& question, Time now);
  /// `decode` gives the message of this kind, if it was not taken before.
  Reply secure_reply(ClientId id, std::int64_t round, std::uint8_t kind,
                     const std::function<Result<SecureAnswer>()>& decode, Time now);
  Reply secure_order(const Client& client, std::uint8_t kind) const;
  std::string certificates_of(const Roster& roster) const;
  Reply reply_to(ClientId id, std::int64_t round, const Describe& question, Time now);
  Reply check_in(ClientId id, Client& client, const CheckIn& question, Time now);
  Time expected_after(const Reply& reply, Time now) const;

  void deliver(Time now);
  Offer offer(const Client& client, Time now);
  Task task(const Client& client, Time now);
  double training_seconds(Time now) const;
  double pause(Time now);
  Refusal refusal(ClientId id, const Error& error);
  /// The round, while clients can do something in it.
  Round* current() { return round_ && !round_->ended() ? &*round_ : nullptr; }
  /// The client's order of this kind in the current round.
  template <class Kind>
  const Kind* order_in(const Client& client, std::int64_t round) {
    const bool is_current = current() != nullptr && round == number_ && client.round == number_;
    return is_current ? std::get_if<Kind>(&*client.order) : nullptr;
  }

  Options options_;
  ServerModel& model_;
  const Description description_;
  std::function<std::string(ClientId)> name_of_;
  std::map<ClientId, Client> clients_;
  ClientLedger ledger_;
  std::int64_t number_;  ///< The round's.
  std::optional<Round> round_;
  ServerModel::Work work_;
  Time began_{};
  std::optional<Duration> last_duration_;
  std::vector<ClientId> answerable_;
  bool is_over_ = false;
  Time over_until_ = Time::max();
  Random random_;
  std::set<std::pair<ClientId, ErrorKind>> noted_;
};

}  // namespace gradwire::federated
