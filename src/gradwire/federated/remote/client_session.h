#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "gradwire/base/random.h"
#include "gradwire/federated/remote/client_costs.h"
#include "gradwire/federated/remote/identity.h"
#include "gradwire/federated/remote/masked_upload.h"
#include "gradwire/federated/remote/message_channel.h"
#include "gradwire/federated/remote/messages.h"
#include "gradwire/net/deadline.h"
#include "gradwire/net/host_network.h"

namespace gradwire::federated {

/// The work of a round, as a client has it.
struct ClientTask {
  std::int64_t round = 0;
  std::int64_t version = 0;
  std::int64_t base_version = -1;  ///< `model` is the difference to this version; -1: the model.
  std::string plan;
  Blob model;
  Time deadline{};  ///< The update must be ready by then.
};

/// A client's end of federated learning, over the network: each call connects, asks, waits for the
/// answer and leaves. It connects again, after pauses that grow, while the server is away; it fails
/// with refused where that would not help. From another thread cancel() ends a call, which fails
/// with aborted. Otherwise not thread-safe.
class ClientSession {
 public:
  struct Options {
    ClientIdentity identity;
    std::string server;           ///< HOST:PORT; empty: the identity's.
    std::filesystem::path state;  ///< The file of ClientCosts.
    CostLimits limits;
    SecureDemands secure;
    Duration give_up = std::chrono::minutes(10);  ///< Longest absence of the server.
    Duration first_pause = std::chrono::milliseconds(500), most_pause = std::chrono::seconds(60);
    Duration patience = std::chrono::seconds(60);  ///< Longest silence of the server.
    /// Called with name_of() each question before it is sent, such as for a log.
    std::function<void(std::string_view)> on_question;
  };
  /// `network` must outlive this. Throws as ClientCosts, and Exception(invalid_argument) if there
  /// is no server.
  ClientSession(const net::HostNetwork& network, Options options,
                std::function<Duration()> time_of_day);

  /// Returns the Description of the model and the data. If the server tells the client to wait, for
  /// example because another process uses this identity, asks again until `give_up` has passed.
  Result<std::string> describe();

  using CheckedIn = std::variant<ClientTask, ComeBack, Over>;
  /// Takes part in a round if the server needs this client, which has so many samples and the model
  /// of `version`, -1: none. Work beyond the limits is declined, before the model is sent.
  Result<CheckedIn> check_in(std::int64_t samples, std::int64_t version);

  /// The upload orders that a round's plan allows.
  struct Terms {
    int update_bits = 2;     ///< Bits of an element of an update that is not weighted.
    std::int64_t draws = 0;  ///< ClientPlan::draws.
    UpdateShape shape;       ///< The upload's; its bytes follow from the order's bits.
  };
  using AfterTraining = std::variant<UploadOrder, NotNeeded>;
  /// Tells the server that the client has trained `steps` steps in `compute_seconds`. Fails with
  /// refused, and leaves the round, in three cases: the client requires secure aggregation and the
  /// server does not use it; the order violates `terms`, because a weight that the server chooses
  /// could set one update apart in the sum; the upload is longer than offered and exceeds a limit.
  Result<AfterTraining> ready(std::int64_t steps, double compute_seconds, const Terms& terms);

  struct Uploaded {
    bool counts = false;  ///< False: the round goes on without it, or is abandoned.
    double seconds = 0;   ///< When to check in again.
  };
  /// Uploads what ready() has returned as an order, once; masked, if the order says so: then it
  /// returns when all others have uploaded, too. Fails with refused, and leaves the round, if the
  /// server would expose it.
  Result<Uploaded> upload(const Contribution& contribution);

  /// The client does not complete the task, such as when it is not eligible any more.
  Status leave(LeaveReason reason);

  void cancel() { cancel_.second.close(); }
  ClientCosts& costs() { return costs_; }

 private:
  Result<CheckedIn> decline(LeaveReason told, const std::string& reason, double come_back);
  Result<CheckedIn> fetch(std::uint64_t bytes);
  Result<Answer> upload_masked(const Contribution& contribution);
  Status check(const UploadOrder& order, const Terms& terms) const;
  std::optional<std::string> exceeded_by(const UploadOrder& order, const UpdateShape& shape);
  Error leave_for(Error error, LeaveReason reason = LeaveReason::refuses_order);
  Result<Answer> exchange(Question question);
  Result<Answer> attempt(const Message& message);
  Status connect();
  Status move(const std::function<bool()>& is_done);
  Status pause(int failures, Time until, const Error& error);
  void disconnect();
  Status note_bytes();
  Error in_words(const Error& error) const;
  template <class Expected>
  Result<Expected> expect(Result<Answer> answer) const;

  const net::HostNetwork& network_;
  Options options_;
  ClientCosts costs_;
  std::uint64_t instance_;
  Random random_;
  std::pair<net::Socket, net::Socket> cancel_;
  std::unique_ptr<MessageChannel> channel_;
  std::int64_t round_ = -1;          ///< The task's,
  std::int64_t answered_round_ = 0;  ///< and that of the last answer.
  std::int64_t samples_ = 0;         ///< Told at the check-in.
  Digest task_{};                    ///< digest_of_task().
  double offered_bytes_ = 0;         ///< Up.
  std::optional<UploadOrder> order_;
  SecureHistory history_;
  std::uint64_t max_answer_bytes_ = kMaxAnswerBytes;
  ClientCost moved_;  ///< Bytes since the last note_bytes().
};

}  // namespace gradwire::federated
