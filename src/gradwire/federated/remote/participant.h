#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gradwire/federated/client_id.h"
#include "gradwire/federated/computed_updates.h"
#include "gradwire/federated/remote/client_plan.h"
#include "gradwire/federated/remote/client_session.h"
#include "gradwire/federated/remote/eligibility.h"
#include "gradwire/federated/remote/tensor_order.h"

namespace gradwire::federated {

/// A client of a FederatedServer, round after round: all but the training, which the caller does
/// between begin() and end().
///
///     while (auto work = participant.begin(samples)) participant.end(train(*work), all_steps);
///
/// Not thread-safe, but for stop().
class Participant {
 public:
  struct Options {
    ClientSession::Options session;
    Eligibility::Options eligibility;
  };
  /// Returns the options of an enrolled client, given its file. The client stores its cost of today
  /// and its last round beside the file, in NAME.state. Throws Exception(invalid_argument, system).
  static Options options_of(const std::filesystem::path& identity);

  /// `network` must outlive this. Throws as ClientSession.
  Participant(const net::HostNetwork& network, Options options,
              std::function<Duration()> time_of_day);

  /// Asks the server, the first time.
  const ModelDescription& description();

  /// Before begin(): the module's trainable parameters and floating buffers. Throws
  /// Exception(invalid_argument) unless the server has the same, in any order.
  void set_tensors(std::span<const ModelDescription::Shape> own);

  /// The work of a round.
  struct Work {
    ClientId client = 0;
    std::int64_t round = 0;
    ClientPlan plan;
    std::vector<float> model;  ///< In the order of set_tensors().
  };
  /// Waits until this client is eligible and the server offers it a round. Logs why it waits,
  /// unless the last wait had the same reason. `samples`: the number of its samples. Returns
  /// nullopt if the server has no more rounds, and after stop(). Throws Exception: refused if the
  /// server does not know the identity.
  std::optional<Work> begin(std::int64_t samples);

  /// Returns false when the training has to end, before the next step: the time of the round, the
  /// eligibility or a limit has ended.
  bool goes_on();

  /// How the client's part in a round has ended.
  struct Outcome {
    bool counted = false;
    std::string reason;  ///< Why it did not count.
  };
  /// After the training, with the update in the order of set_tensors(). `all_steps`: of the plan.
  Outcome end(const LocalResult& result, std::int64_t all_steps);

  /// Leaves the round in place of end(). The server is told `reason`, so that it does not wait;
  /// `details` stay here, in the outcome.
  Outcome leave(LeaveReason reason, std::string details);
  Outcome leave(LeaveReason reason) { return leave(reason, std::string(text_of(reason))); }

  /// Ends begin(), goes_on() and end(), for good; from any thread.
  void stop();

 private:
  void come_back(const ComeBack& told);
  bool wait(double seconds);
  bool wait_until_eligible();
  std::optional<Work> work_for(const ClientTask& task);
  Status take(const ClientTask& task, const ClientPlan& plan);
  Outcome upload(const UploadOrder& order, const LocalResult& result,
                 const UpdateQuantizer& quantizer);

  const net::HostNetwork& network_;
  ClientId id_;
  ClientSession session_;
  Eligibility eligibility_;
  std::pair<net::Socket, net::Socket> stop_;
  std::atomic<bool> is_stopped_ = false;
  std::string description_text_;  ///< The server's words, byte for byte.
  std::optional<ModelDescription> description_;
  TensorOrder order_;
  std::int64_t version_ = -1;  ///< The model's,
  std::vector<float> values_;  ///< in the server's order.
  double come_back_ = 0;       ///< Seconds until the next check-in,
  std::string said_;           ///< and the last reason for such a wait that was logged.

  // The round.
  ClientPlan plan_;
  std::int64_t round_ = 0;
  Time began_{}, deadline_{};
  std::int64_t steps_ = 0;
  /// Why the training was not complete, and the details; nothing: it was.
  std::optional<std::pair<LeaveReason, std::string>> ended_early_;
};

}  // namespace gradwire::federated
