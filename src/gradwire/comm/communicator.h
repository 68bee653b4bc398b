#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "gradwire/base/element.h"
#include "gradwire/base/lent_span.h"
#include "gradwire/base/types.h"
#include "gradwire/base/work.h"
#include "gradwire/bootstrap/job.h"
#include "gradwire/engine/engine_traits.h"
#include "gradwire/schedule/schedule.h"

namespace gradwire::bootstrap {
class Store;
}
namespace gradwire::net {
class HostNetwork;
}

namespace gradwire {

using bootstrap::Job;
using engine::EngineTraits;
using schedule::Collective;

struct OperationOptions {
  /// The caller waits at once, and starts nothing before that other ranks may need to get there.
  /// MPI's blocking functions, which are faster, are used then. Must be the same on all ranks.
  /// Default: false.
  bool waits_at_once = false;
  /// Operations of higher priority overtake those of lower priority to the same peer. Default: 0.
  int priority = 0;
  /// Lane of a collective. All ranks must call the collectives of one lane in the same order; lanes
  /// are independent of each other. Default: 0; reserve_lanes() returns others.
  int lane = 0;
  /// The operation fails on every rank after this time. Unset:
  /// CommunicatorOptions::operation_timeout.
  std::optional<Duration> timeout;
  /// If the operation fails, the data is left unmodified. Costs a second buffer and a copy.
  bool preserve_input = false;
  /// Forces an algorithm ("ring", "tree", ...; `gradwire schedule` lists them). Must be the same on
  /// all ranks. Empty: the job's (CommunicatorOptions::algorithm), else the tuner's choice.
  std::string algorithm;
  /// How the caller divides the elements among its own buffers, as a number; a difference between
  /// ranks is an error, as one of sizes is. Default: 0, undivided.
  std::uint64_t layout = 0;
  /// Approximate number of segments into which this rank cuts each message for cut-through, within
  /// the limits of segment sizes. 0: the value that `gradwire tune` found for the algorithm, else
  /// 16. Does not affect results.
  int segments = 0;
};

struct CommunicatorOptions {
  /// The engine that executes operations: "own", or "mpi", whose launcher has started the ranks
  /// (docs/engines.md). Must be the same on all ranks. Empty: the job's.
  std::string engine;
  /// Operations that take longer fail with ErrorKind::timeout on every rank.
  Duration operation_timeout = std::chrono::minutes(10);
  /// A peer that has sent nothing for this time, although it is pinged, counts as dead.
  Duration dead_peer_timeout = std::chrono::seconds(5);
  /// Maximum time to wait until all ranks have joined.
  Duration rendezvous_timeout = std::chrono::seconds(60);
  /// Maximum payload bytes of one frame: the unit of cut-through.
  std::size_t segment_bytes = 128 * 1024;
  /// Eager messages: messages up to this size are sent before the receiver has posted the
  /// operation.
  std::size_t eager_bytes = 16 * 1024;
  /// Algorithms that override the tuner, in the format of GRADWIRE_ALGORITHM: "ring", or
  /// "all_reduce=ring,broadcast=tree". Empty: the value of that variable, if set.
  std::string algorithm;
  /// A file written by `gradwire probe`. Only the value on rank 0 is used; rank 0 distributes the
  /// topology. Empty: the value of GRADWIRE_TOPOLOGY. With neither, links are assumed to be 1 Gb/s
  /// Ethernet.
  std::string topology;
  /// Distinguishes the communicators of one process that use the same store or share one port. Must
  /// be the same on all of their ranks.
  std::string scope = "0";
  /// The operations that fail with a rank that is lost, leaves or errs. `job`: all of them, on all
  /// ranks. `pair`: the messages between that rank and each other one; messages between others go
  /// on. A communicator of pairs has messages only (send, recv, recv_any): collectives throw
  /// Exception(unsupported). Must be the same on all ranks.
  FailureDomain failure_domain = FailureDomain::job;
  /// Where the variables named above are read from.
  bootstrap::Environment environment = bootstrap::process_environment();
  /// Source of time and connections. Null: this host's.
  std::shared_ptr<const net::HostNetwork> network;
};

/// Estimate of an algorithm by the cost model or a measurement.
struct AlgorithmEstimate {
  std::string algorithm;
  Duration time = Duration::zero();
  std::uint32_t steps = 0;     ///< Hops of the longest chain of messages (critical path).
  std::size_t bytes_sent = 0;  ///< Maximum over the ranks.
  bool measured = false;       ///< `time` was measured by `gradwire tune`, not modeled.
  int segments = 0;            ///< Per message, if measured; else 0.
};

/// A group of ranks that perform collective operations. Every rank must call the same collectives
/// in the same order; calls in different lanes may be interleaved in any order. A mismatch is an
/// error on all ranks. All operations are asynchronous, and several may be in flight. After any
/// error the communicator is unusable, and later operations fail; another failure domain limits
/// that (CommunicatorOptions::failure_domain). Thread-safe, but the caller must keep the order of
/// calls the same on all ranks.
///
/// Every operation below produces bitwise the same result on all ranks.
class Communicator {
 public:
  /// Joins the job: looks up the other ranks' addresses, connects to each and verifies that it
  /// knows the secret. `store` is where addresses are exchanged; null: gradwire's own store on the
  /// job's master port. Throws Exception: timeout (names the missing ranks), refused,
  /// invalid_argument, system.
  static std::shared_ptr<Communicator> connect(const Job& job,
                                               const CommunicatorOptions& options = {},
                                               std::shared_ptr<bootstrap::Store> store = nullptr);

  /// Graceful shutdown, when the last of a communicator and its subgroups is destroyed: waits for
  /// operations in flight, within their timeouts, then tells the peers that this rank leaves.
  /// Receives of messages that no peer has begun to send fail with ErrorKind::aborted. If an
  /// exception is unwinding the stack, everything in flight fails with it, on the peers too.
  virtual ~Communicator() = default;

  virtual Rank rank() const = 0;
  virtual int size() const = 0;
  /// The capabilities of its engine. The same on all ranks.
  virtual EngineTraits traits() const = 0;

  /// Returns the first of `count` consecutive lanes reserved for the caller. Operations posted
  /// there in another order than the rest do not interfere with it. Ranks that call this in the
  /// same order get the same lanes. Throws Exception(invalid_argument) when all 2^30 lanes are
  /// reserved.
  /// Collective over the ranks with engines other than gradwire's own.
  int reserve_lanes(int count);

  /// Returns a communicator of some of the ranks, which are its ranks 0, 1, ... in this order. It
  /// shares connections, the progress thread and priorities with this one, so that an operation of
  /// one can overtake those of the other. Lanes and tags are its own; traffic is counted together.
  /// Any error ends both. Collective over these ranks, which must make the subgroups that they have
  /// in common in the same order. Throws Exception(invalid_argument) if this rank is not among
  /// them, or for a rank that is out of range or repeated.
  virtual std::shared_ptr<Communicator> subgroup(std::span<const Rank> ranks) = 0;

  /// data[i] = reduction over ranks of data[i], on every rank, in place.
  virtual Work all_reduce(LentSpan data, ReduceOp op, const OperationOptions& options = {}) = 0;

  /// data = root's data, on every rank.
  virtual Work broadcast(LentSpan data, Rank root, const OperationOptions& options = {}) = 0;

  /// output (P * input.count elements) = the concatenated inputs of ranks 0, 1, ... The input may
  /// be its own part of the output (in place).
  virtual Work all_gather(LentConstSpan input, LentSpan output,
                          const OperationOptions& options = {}) = 0;

  /// output (input.count / P elements) = this rank's part of the reduction of all inputs. Input and
  /// output must not overlap.
  virtual Work reduce_scatter(LentConstSpan input, LentSpan output, ReduceOp op,
                              const OperationOptions& options = {}) = 0;

  /// data[i] on the root = reduction over ranks of data[i]. On the other ranks data is unmodified.
  virtual Work reduce(LentSpan data, Rank root, ReduceOp op,
                      const OperationOptions& options = {}) = 0;

  /// On the root, output (P * input.count elements) = the concatenated inputs of ranks 0, 1, ...
  /// `output` is ignored on the other ranks.
  virtual Work gather(LentConstSpan input, LentSpan output, Rank root,
                      const OperationOptions& options = {}) = 0;

  /// output = this rank's part of the root's input (P * output.count elements). `input` is ignored
  /// on the other ranks.
  virtual Work scatter(LentConstSpan input, LentSpan output, Rank root,
                       const OperationOptions& options = {}) = 0;

  /// Part r of the input goes to rank r; part c of the output comes from rank c. All parts have
  /// input.count / P elements. Input and output must not overlap.
  virtual Work all_to_all(LentConstSpan input, LentSpan output,
                          const OperationOptions& options = {}) = 0;

  /// all_to_all with parts of different sizes: input_counts[r] elements go to rank r, and
  /// output_counts[c] come from rank c. Both sides must agree on each count; a mismatch ends the
  /// communicator on every rank. Unless an algorithm is forced, this is "direct": the tuner chooses
  /// by size, and the sizes differ between ranks.
  virtual Work all_to_all(LentConstSpan input, LentSpan output,
                          std::span<const std::size_t> input_counts,
                          std::span<const std::size_t> output_counts,
                          const OperationOptions& options = {}) = 0;

  /// Completes when every rank has called it, and when all collectives that any rank posted before
  /// it in its lane have completed there. Does not wait for messages (send, recv).
  virtual Work barrier(const OperationOptions& options = {}) = 0;

  /// Messages between two ranks with the same tag (0 .. 2^30 - 1) arrive in the order in which they
  /// were sent. Count and type must agree on both sides. A message of a rank to itself is copied,
  /// so its send completes at once.
  virtual Work send(LentConstSpan data, Rank to, int tag = 0,
                    const OperationOptions& options = {}) = 0;
  virtual Work recv(LentSpan data, Rank from, int tag = 0,
                    const OperationOptions& options = {}) = 0;

  /// Receives the next message with this tag from any rank, this one included; Work::source()
  /// returns which. Messages are matched in the order in which they were announced.
  virtual Work recv_any(LentSpan data, int tag = 0, const OperationOptions& options = {}) = 0;

  /// Calls `post` and starts the operations that it posts on this communicator together, so that
  /// their small messages share frames and system calls. The Work completes when all of them have.
  virtual Work coalesced(const std::function<void(Communicator&)>& post) = 0;

  /// Returns the tuner's estimates for `bytes` bytes, its preferred algorithm first. For
  /// point_to_point: one message from rank 0 to rank 1. The same on all ranks.
  /// Empty without EngineTraits::has_algorithms.
  virtual std::vector<AlgorithmEstimate> explain(Collective collective, std::size_t bytes) = 0;
  /// Returns the algorithm used by such an operation (root 0) that forces none: the job's
  /// (CommunicatorOptions::algorithm), else the tuner's choice. The same on all ranks.
  virtual std::string algorithm_for(Collective collective, std::size_t bytes) = 0;

  /// Payload and header bytes that this rank has handed to the network. 0 without
  /// EngineTraits::counts_bytes.
  virtual std::size_t bytes_sent() const = 0;
  /// Payload bytes alone, as the schedules require. 0 likewise.
  virtual std::size_t payload_bytes_sent() const = 0;

  /// Fails all operations with ErrorKind::aborted, here and on the peers, which receive `reason`.
  virtual void abort(const std::string& reason) = 0;

  /// Fails the messages with one other rank with ErrorKind::aborted, here and there, which receives
  /// `reason`. Requires FailureDomain::pair; throws Exception(invalid_argument) otherwise.
  virtual void abort_with(Rank peer, const std::string& reason) = 0;

  /// Leaves without waiting for operations in flight, which fail with ErrorKind::aborted here and
  /// on the peers. `failure`: why, for the peers' errors, such as "after an exception: ...". No
  /// member may be called afterwards.
  virtual void leave_at_once(const std::string& failure) = 0;

 protected:
  /// Makes lanes usable that reserve_lanes() has reserved.
  virtual void open_lanes(int /*first*/, int /*count*/) {}
  /// Makes reserve_lanes() of both communicators draw from one sequence, for a communicator that
  /// posts to the engine of another.
  void share_lanes(const Communicator& other) { next_lane_ = other.next_lane_; }

 private:
  std::shared_ptr<std::atomic<int>> next_lane_ = std::make_shared<std::atomic<int>>(1);
};

}  // namespace gradwire
