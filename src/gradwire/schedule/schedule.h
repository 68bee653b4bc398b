#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gradwire/base/types.h"

/// A collective as data. An algorithm is a pure function from a topology to a Schedule. The
/// verifier, the cost model, the drawing, the simulator and the executor all read the same value.
namespace gradwire::schedule {

/// Wire format: values must not change; append only.
enum class Collective : std::uint8_t {
  all_reduce = 0,
  broadcast = 1,
  all_gather = 2,
  reduce_scatter = 3,
  barrier = 4,
  point_to_point = 5,
  reduce = 6,
  gather = 7,
  scatter = 8,
  all_to_all = 9,
};

std::string_view name_of(Collective collective);

/// Returns true for collectives that reduce: all_reduce, reduce_scatter, reduce.
bool reduces(Collective collective);

/// Returns true if each chunk is one rank's part, all of equal size: C = P in the table below.
bool has_parts(Collective collective);

/// Contract of each collective, in chunks (C = Schedule::chunks, P = ranks, *: on the root only):
///
///   collective      input       output        result
///   all_reduce      C           C             output[c] = finish(sum of all ranks' input[c])
///   reduce_scatter  C = P       1             output[0] on rank r = finish(sum of all input[r])
///   all_gather      1           C = P         output[c] = input[0] of rank c
///   broadcast       -           C             output[c] = the root's initial output[c]
///   barrier         -           -             no rank leaves before all ranks have entered
///   point_to_point  C (sender)  C (receiver)  output[c] = the root's input[c], on `target` only
///   reduce          C           C *           output[c] = finish(sum of all ranks' input[c])
///   gather          1           C = P *       output[c] = input[0] of rank c
///   scatter         C = P *     1             output[0] on rank r = the root's input[r]
///   all_to_all      C = P       C = P         output[c] on rank r = input[r] of rank c
///
/// "sum" stands for any reduction, finish() for its postscale (Op::postscale). Input and output may
/// be the same memory in all_reduce, and on the root of reduce. In all_gather the input may be the
/// rank's part of the output. Otherwise the input is never written. Ranks without an output keep
/// partial results in scratch. all_to_all has no scratch, so its parts may differ in size (Splits,
/// layout.h).
struct CollectiveSpec {
  Collective collective = Collective::all_reduce;
  Rank root = 0;    ///< broadcast, scatter: source; reduce, gather: destination; point_to_point:
                    ///< sender.
  Rank target = 0;  ///< point_to_point: the receiver.
};

enum class Buffer : std::uint8_t { input, output, scratch };

/// `count` consecutive chunks of a buffer, starting at `first`. Never in bytes: ChunkLayout binds
/// those late. Chunks of `scratch` are slots, each as large as the data chunk it mirrors. Several
/// slots form a slice only if they mirror consecutive chunks.
struct Slice {
  Buffer buffer = Buffer::output;
  std::uint32_t first = 0;
  std::uint32_t count = 0;

  bool operator==(const Slice&) const = default;
};

enum class OpKind : std::uint8_t {
  send,         ///< peer receives src.
  recv,         ///< dst = message from peer.
  recv_reduce,  ///< dst = src reduced with the message from peer.
  copy,         ///< dst = src.
  reduce,       ///< dst = dst reduced with src.
};

/// The left operand of a reduction. Floating-point results on different ranks are bitwise equal
/// only if all evaluate the same expression, with operands in the same order.
enum class OperandOrder : std::uint8_t {
  local_first,     ///< recv_reduce: src + received;  reduce: dst + src.
  incoming_first,  ///< recv_reduce: received + src;  reduce: src + dst.
};

/// Index of an op in its rank's program.
using OpIndex = std::uint32_t;

/// A range of Program::dependencies.
struct DependencySpan {
  std::uint32_t first = 0;
  std::uint32_t count = 0;
};

/// One step of one rank. The k-th send of rank a to rank b matches the k-th receive (recv or
/// recv_reduce) of b from a. Only these matches and `after` order ops.
struct Op {
  OpKind kind = OpKind::copy;
  OperandOrder order = OperandOrder::local_first;
  /// The reduction is complete: apply its postscale (mean: divide).
  bool postscale = false;
  Rank peer = -1;
  Slice dst;
  Slice src;
  DependencySpan after;
};

/// Program of one rank. An op runs as soon as the ops in its `after` allow; nothing else orders
/// ops.
struct Program {
  std::vector<Op> ops;
  std::vector<OpIndex> dependencies;
  /// scratch_mirrors[s] is the data chunk whose size scratch slot s has.
  std::vector<std::uint32_t> scratch_mirrors;

  std::span<const OpIndex> after(const Op& op) const {
    return std::span(dependencies).subspan(op.after.first, op.after.count);
  }
};

struct Schedule {
  CollectiveSpec spec;
  int ranks = 1;
  /// Number of chunks that the data is cut into (see CollectiveSpec).
  std::uint32_t chunks = 1;
  /// Returns one rank's program. Each rank of thousands builds only its own. Pure, thread-safe.
  std::function<Program(Rank)> program;
  /// "ring", "direct", ...: used on the command line, in errors and in fingerprints. Fingerprints
  /// hold the first 16 characters, in which a collective's algorithms must differ.
  std::string name;
  /// Receives come in turn, as in a butterfly: a rank needs the whole message of one peer before
  /// that of the next. A sender that is ahead should leave the wire to those that are behind.
  bool sequential_peers = false;
};

/// Returns true if op `later`, which depends on `earlier`, may follow it byte by byte. Both then
/// touch the same slice, so a prefix of one frees the same prefix of the other, and segments are
/// forwarded while others still arrive (cut-through). Otherwise `later` waits for all of `earlier`.
/// `input` and `output` count as the same memory, as in an in-place all_reduce.
bool flows_through(const Op& earlier, const Op& later);

/// Builds a program. Each call appends an op and returns its index, for use in the `after` of later
/// ops.
class ProgramBuilder {
 public:
  using After = std::initializer_list<OpIndex>;

  OpIndex send(Rank peer, Slice src, std::span<const OpIndex> after = {});
  OpIndex recv(Rank peer, Slice dst, std::span<const OpIndex> after = {});
  OpIndex recv_reduce(Rank peer, Slice dst, Slice src, OperandOrder order,
                      std::span<const OpIndex> after = {});
  OpIndex copy(Slice dst, Slice src, std::span<const OpIndex> after = {});
  OpIndex reduce(Slice dst, Slice src, OperandOrder order, std::span<const OpIndex> after = {});

  OpIndex send(Rank peer, Slice src, After after) { return send(peer, src, span_of(after)); }
  OpIndex recv(Rank peer, Slice dst, After after) { return recv(peer, dst, span_of(after)); }
  OpIndex recv_reduce(Rank peer, Slice dst, Slice src, OperandOrder order, After after) {
    return recv_reduce(peer, dst, src, order, span_of(after));
  }
  OpIndex copy(Slice dst, Slice src, After after) { return copy(dst, src, span_of(after)); }
  OpIndex reduce(Slice dst, Slice src, OperandOrder order, After after) {
    return reduce(dst, src, order, span_of(after));
  }

  /// Sets Op::postscale: the op completes the reduction.
  void postscale(OpIndex op);

  /// Adds a scratch slot as large as data chunk `mirrored`.
  Slice scratch(std::uint32_t mirrored);

  /// Adds scratch slots, one for each data chunk from `mirrored` to `mirrored + count - 1`.
  Slice scratch(std::uint32_t mirrored, std::uint32_t count);

  Program build() &&;

 private:
  static std::span<const OpIndex> span_of(After after) { return {after.begin(), after.size()}; }
  OpIndex append(Op op, std::span<const OpIndex> after);

  Program program_;
};

}  // namespace gradwire::schedule
