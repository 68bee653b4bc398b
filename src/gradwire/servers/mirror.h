#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "gradwire/base/work.h"
#include "gradwire/comm/communicator.h"
#include "gradwire/servers/sample_dealer.h"
#include "gradwire/servers/served_shards.h"

/// A server's copy of another one, which serves on if that is lost. The mirrored server sends its
/// parts of a unit, with the states of the optimizer, after some updates of it; the other one keeps
/// the last copy that has arrived as a whole.
namespace gradwire::servers {

/// The samples that a server deals.
struct Dealing {
  std::int64_t samples = 0, epochs = 0;
  DealProgress progress;
};

/// A server's parts as they are, and their copies on the server that mirrors it: steps also send.
/// Not thread-safe.
class MirroredShards final : public ServedShards {
 public:
  struct Options {
    std::shared_ptr<Communicator> pairs;
    Rank mirror = 0;  ///< The server with the copies.
    /// The maximum number of updates of a unit that the loss of this server may cost: a step waits
    /// while the other server lacks that many. At least 1.
    std::int64_t every = 1;
    std::function<std::optional<Dealing>()> dealing;  ///< Says what this server deals; may be null.
    std::function<void(const std::string&)> warn;     ///< Called if the other server is lost.
  };

  /// `shards` must outlive this.
  MirroredShards(ServedShards& shards, Options options);

  std::size_t units() const override { return shards_.units(); }
  LentSpan values(std::size_t unit) override { return shards_.values(unit); }
  void step(std::size_t unit, const LentSpan& gradient, double rate) override;
  void loaded(std::size_t unit) override;
  void begun_at(std::size_t unit, std::int64_t version) override;
  void states_loaded() override;
  void dealing_begun() override;
  std::vector<LentSpan> states_of(std::size_t unit) override { return shards_.states_of(unit); }

  /// Tells the other server that this one ends, and is not lost. Nothing else may follow.
  void end();

 private:
  struct Unit {
    std::int64_t version = 0;   ///< Updates.
    std::int64_t sent = 0;      ///< Those of the last copy.
    std::int64_t mirrored = 0;  ///< Those of the last one that has arrived.
    bool in_flight = false;
  };
  /// A copy on its way, or its acknowledgement.
  struct Message;

  void send(std::size_t unit);
  void take_acknowledgements(bool wait_for_one);
  void lose(const std::string& why);

  ServedShards& shards_;
  Options options_;
  std::vector<Unit> units_;
  std::deque<std::shared_ptr<Message>> in_flight_;  ///< In the order of the acknowledgements.
  bool lost_ = false;                               ///< The other server is.
};

/// The copies of another server, which this one receives. Thread-safe.
class Mirror {
 public:
  /// The parts and samples that a server takes over.
  struct Adopted {
    std::vector<std::int64_t> versions;  ///< By unit: updates of which it has the result.
    std::optional<Dealing> dealing;
  };

  /// `primary`: the rank of the other server. `shards`, which has parts as large as that server's,
  /// is written until the other one is lost, and must outlive this.
  Mirror(std::shared_ptr<Communicator> pairs, Rank primary, ServedShards& shards);
  /// Waits until the other server has ended or is lost.
  ~Mirror();

  /// Waits for the loss of the other server, and returns the state of its last copies. Throws
  /// Exception(mismatch) if that server ends regularly.
  Adopted adopt();

 private:
  void receive_all();
  bool receive_one();

  std::shared_ptr<Communicator> pairs_;
  Rank primary_;
  ServedShards& shards_;
  std::mutex mutex_;
  std::condition_variable ended_;
  bool lost_ = false, left_ = false;
  Adopted copy_;
  std::thread thread_;
};

}  // namespace gradwire::servers
