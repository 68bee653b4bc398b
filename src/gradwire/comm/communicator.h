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
#include "gradwire/base/types.h"
#include "gradwire/comm/job.h"
#include "gradwire/comm/tuner.h"
#include "gradwire/comm/work.h"
#include "gradwire/schedule/schedule.h"

namespace gradwire {

class Store;

/// Memory lent to an operation until its Work completes. `keep_alive` (optional) owns it until
/// then; without it the caller promises that it lives as long.
struct LentSpan {
  void* data = nullptr;
  std::size_t count = 0;  ///< Elements.
  DataType type = DataType::float32;
  std::shared_ptr<const void> keep_alive;
};

/// The same for memory that is only read.
struct LentConstSpan {
  const void* data = nullptr;
  std::size_t count = 0;
  DataType type = DataType::float32;
  std::shared_ptr<const void> keep_alive;

  LentConstSpan() = default;
  LentConstSpan(const void* d, std::size_t n, DataType t, std::shared_ptr<const void> k = nullptr)
      : data(d), count(n), type(t), keep_alive(std::move(k)) {}
  LentConstSpan(const LentSpan& span)  // NOLINT: what may be written may be read.
      : data(span.data), count(span.count), type(span.type), keep_alive(span.keep_alive) {}
};

struct OperationOptions {
  /// Operations of higher urgency overtake lower ones on the wire. 0 is usual.
  int urgency = 0;
  /// Of a collective: those of one lane are called in the same order on every rank, and lanes are
  /// independent of each other. 0 is usual, and what reserve_lanes() gives.
  int lane = 0;
  /// How long the operation may take before it fails on every rank; nothing: the communicator's.
  std::optional<Duration> timeout;
  /// If the operation fails, the data is as it was before. Costs a second buffer and a copy.
  bool preserve_input = false;
  /// Force an algorithm ("ring", "tree", ...: `gradwire schedule` lists them); empty: the job's
  /// (CommunicatorOptions::algorithm), else the tuner's choice. Must be the same on all ranks.
  std::string algorithm;
  /// Into about how many segments this rank cuts each message, so that it is passed on while it
  /// still arrives; within limits of their sizes. 0: what `gradwire tune` found for the algorithm,
  /// else 16. Changes no result.
  int segments = 0;
};

struct CommunicatorOptions {
  /// Operations that take longer fail with ErrorKind::timeout on every rank.
  Duration operation_timeout = std::chrono::minutes(10);
  /// A peer from which nothing has come for this long (it is pinged) counts as dead.
  Duration dead_peer_timeout = std::chrono::seconds(5);
  /// How long to wait for all ranks to turn up.
  Duration rendezvous_timeout = std::chrono::seconds(60);
  /// Most payload bytes of one frame: what is cut through at once.
  std::size_t segment_bytes = 128 * 1024;
  /// Messages up to this size travel before the receiver has posted the operation.
  std::size_t eager_bytes = 16 * 1024;
  /// Algorithms to use whatever the tuner says, as in GRADWIRE_ALGORITHM: "ring", or
  /// "all_reduce=ring,broadcast=tree". Empty: that variable's value, if it is set.
  std::string algorithm;
  /// A file that `gradwire probe` wrote; only rank 0's counts, and it tells the others. Empty:
  /// GRADWIRE_TOPOLOGY's value; without either the links are taken for 1 Gb/s Ethernet.
  std::string topology;
  /// Keeps apart the communicators of one process that meet in one store or share one port; the
  /// same on all of their ranks.
  std::string scope = "0";
};

/// Ranks that do collective operations together. Every rank must call the same collectives in the
/// same order; a rank that does not is an error on all of them. All operations are asynchronous:
/// several may be in flight. (Calls in different lanes may come in any order.) After any error the
/// communicator is unusable, and says so. Thread-safe, except that the order of calls is then the
/// caller's to keep.
///
/// `all ranks end with the bitwise same result` holds for every operation below.
class Communicator {
 public:
  /// Joins the job: finds the others, connects to each and checks that it knows the secret.
  /// `store`: where addresses are exchanged; by default our own on the job's master port.
  /// Throws Exception: timeout (names the missing ranks), refused, invalid_argument, system.
  static std::shared_ptr<Communicator> connect(const Job& job,
                                               const CommunicatorOptions& options = {},
                                               std::shared_ptr<Store> store = nullptr);

  /// Waits for operations in flight, within their timeouts, and then says goodbye to the peers.
  /// Receives of messages that no peer has begun to send fail with ErrorKind::aborted, and so does
  /// everything in flight, on the peers too, if an exception is unwinding the stack.
  virtual ~Communicator() = default;

  virtual Rank rank() const = 0;
  virtual int size() const = 0;

  /// The first of `count` lanes in a row that nobody else is given: what posts operations in an
  /// order of its own then disturbs no other. Ranks that ask in the same order get the same.
  /// Throws Exception(invalid_argument) when all 2^30 have been given.
  int reserve_lanes(int count);

  /// data[i] = reduction over ranks of data[i], on every rank, in place.
  virtual Work all_reduce(LentSpan data, ReduceOp op, const OperationOptions& options = {}) = 0;

  /// data = root's data, on every rank.
  virtual Work broadcast(LentSpan data, Rank root, const OperationOptions& options = {}) = 0;

  /// output (P * input.count elements) = the inputs of rank 0, 1, ... one after the other. Input
  /// may be its own place in the output.
  virtual Work all_gather(LentConstSpan input, LentSpan output,
                          const OperationOptions& options = {}) = 0;

  /// output (input.count / P elements) = this rank's part of the reduction of all inputs. The two
  /// must not overlap.
  virtual Work reduce_scatter(LentConstSpan input, LentSpan output, ReduceOp op,
                              const OperationOptions& options = {}) = 0;

  /// data[i] on the root = reduction over ranks of data[i]; on the others data stays as it is.
  virtual Work reduce(LentSpan data, Rank root, ReduceOp op,
                      const OperationOptions& options = {}) = 0;

  /// On the root, output (P * input.count elements) = the inputs of rank 0, 1, ... one after the
  /// other; the others' `output` is not looked at.
  virtual Work gather(LentConstSpan input, LentSpan output, Rank root,
                      const OperationOptions& options = {}) = 0;

  /// output = this rank's part of the root's input (P * output.count elements); the others' `input`
  /// is not looked at.
  virtual Work scatter(LentConstSpan input, LentSpan output, Rank root,
                       const OperationOptions& options = {}) = 0;

  /// Part r of the input goes to rank r; part c of the output comes from rank c. All parts have
  /// input.count / P elements. The two must not overlap.
  virtual Work all_to_all(LentConstSpan input, LentSpan output,
                          const OperationOptions& options = {}) = 0;

  /// The same with parts of any size: input_counts[r] elements go to rank r, output_counts[c] come
  /// from rank c, which must say the same (a mismatch ends the communicator on every rank). Where
  /// no algorithm is forced it is "direct": the tuner goes by sizes, of which each rank has others.
  virtual Work all_to_all(LentConstSpan input, LentSpan output,
                          std::span<const std::size_t> input_counts,
                          std::span<const std::size_t> output_counts,
                          const OperationOptions& options = {}) = 0;

  /// Completes when every rank has called it, and when all collectives that any rank posted before
  /// it in its lane have completed there. Messages (send, recv) are not waited for.
  virtual Work barrier(const OperationOptions& options = {}) = 0;

  /// Messages between two ranks with the same tag (0 .. 2^30 - 1) arrive in the order they were
  /// sent; count and type must agree.
  virtual Work send(LentConstSpan data, Rank to, int tag = 0,
                    const OperationOptions& options = {}) = 0;
  virtual Work recv(LentSpan data, Rank from, int tag = 0,
                    const OperationOptions& options = {}) = 0;

  /// The next message with this tag from whichever rank: Work::source() says which. Messages that
  /// were there first come first.
  virtual Work recv_any(LentSpan data, int tag = 0, const OperationOptions& options = {}) = 0;

  /// Calls `post`, whose operations on this communicator start together, so that their small
  /// messages share frames and system calls; the Work completes when all of them have.
  virtual Work coalesced(const std::function<void(Communicator&)>& post) = 0;

  /// The tuner's estimates for `bytes` bytes, the one it would choose first; of point_to_point, for
  /// one message from rank 0 to rank 1. Same on all ranks.
  virtual std::vector<AlgorithmEstimate> explain(Collective collective, std::size_t bytes) = 0;
  /// The algorithm that such an operation takes unless it asks for one itself (root 0): the job's
  /// (CommunicatorOptions::algorithm), else the tuner's choice. Same on all ranks.
  virtual std::string algorithm_for(Collective collective, std::size_t bytes) = 0;

  /// Payload and header bytes handed to the network so far, this rank's alone.
  virtual std::size_t bytes_sent() const = 0;
  /// Payload bytes alone: what the schedules ask for.
  virtual std::size_t payload_bytes_sent() const = 0;

  /// Ends all operations with ErrorKind::aborted, here and on the peers, which are told `reason`.
  virtual void abort(const std::string& reason) = 0;

  /// Leaves now, without waiting for what is in flight, which fails with ErrorKind::aborted here
  /// and on the peers. Nothing may be called afterwards.
  virtual void leave_at_once() = 0;

 protected:
  /// From now on what both give out are lanes of one row: for one that posts to the other's engine.
  void share_lanes(const Communicator& other) { next_lane_ = other.next_lane_; }

 private:
  std::shared_ptr<std::atomic<int>> next_lane_ = std::make_shared<std::atomic<int>>(1);
};

}  // namespace gradwire
