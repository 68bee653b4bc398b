#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gradwire/base/types.h"

/// A collective as data. An algorithm is a pure function from a topology to a Schedule; the
/// verifier, the cost model, the drawing, the simulator and the executor all read the same value.
namespace gradwire {

/// Values travel on the wire: append only.
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

/// Whether it adds numbers up (or takes the largest, ...): all_reduce, reduce_scatter, reduce.
bool reduces(Collective collective);

/// Whether each chunk is one rank's part, all as large: C = P in the table below.
bool has_parts(Collective collective);

/// What a schedule has to achieve, in chunks (C = Schedule::chunks, P = ranks):
///
///   collective      input       output        afterwards
///   all_reduce      C           C             output[c] = finish(sum of every rank's input[c])
///   reduce_scatter  C = P       1             output[0] on rank r = finish(sum of every input[r])
///   all_gather      1           C = P         output[c] = input[0] of rank c
///   broadcast       -           C             output[c] = the root's output[c] beforehand
///   barrier         -           -             every rank has heard from every other
///   point_to_point  C (sender)  C (receiver)  output[c] = the root's input[c], on `target` alone
///   reduce          C           C (r.)        output[c] = finish(sum of every input[c])
///   gather          1           C = P (r.)    output[c] = input[0] of rank c
///   scatter         C = P (r.)  1             output[0] on rank r = the root's input[r]
///   all_to_all      C = P       C = P         output[c] on rank r = input[r] of rank c
///
/// (r.): on the root alone. In all_reduce, and on the root of reduce, the input and the output may
/// be the same memory. Input is never written otherwise. What a rank has no output for it keeps in
/// scratch; all_to_all has no scratch, so that its parts may be of any size (Splits, layout.h).
struct CollectiveSpec {
  Collective collective = Collective::all_reduce;
  Rank root = 0;    ///< broadcast, scatter: whose data; reduce, gather: who gets it;
                    ///< point_to_point: the sender.
  Rank target = 0;  ///< point_to_point: the receiver.
};

enum class Buffer : std::uint8_t { input, output, scratch };

/// `count` consecutive chunks of a buffer, from `first`. Never in bytes: those are bound late, by
/// ChunkLayout. Chunks of `scratch` are slots, each as large as the data chunk it mirrors; several
/// make a slice only if they mirror consecutive chunks.
struct Slice {
  Buffer buffer = Buffer::output;
  std::uint32_t first = 0;
  std::uint32_t count = 0;

  bool operator==(const Slice&) const = default;
};

enum class OpKind : std::uint8_t {
  send,         ///< src travels to peer.
  recv,         ///< dst = what peer sent.
  recv_reduce,  ///< dst = src combined with what peer sent.
  copy,         ///< dst = src.
  reduce,       ///< dst = dst combined with src.
};

/// Which operand stands on the left of a reduction. Floating-point results on different ranks are
/// bitwise equal only if the same expression is evaluated, operands in the same order.
enum class Order : std::uint8_t {
  local_first,     ///< recv_reduce: src + received;  reduce: dst + src.
  incoming_first,  ///< recv_reduce: received + src;  reduce: src + dst.
};

/// Index of an op in its rank's program.
using OpIndex = std::uint32_t;

/// A run of Program::dependencies.
struct DependencySpan {
  std::uint32_t first = 0;
  std::uint32_t count = 0;
};

/// One step of one rank. The k-th send of rank a to rank b is matched with the k-th receive
/// (recv or recv_reduce) of b from a; nothing else orders ops than this and `after`.
struct Op {
  OpKind kind = OpKind::copy;
  Order order = Order::local_first;
  /// The result is complete: apply what the reduction wants done once at the end (mean: divide).
  bool finish = false;
  Rank peer = -1;
  Slice dst;
  Slice src;
  DependencySpan after;
};

/// What one rank does. Ops run as soon as those they come after allow it, in no other order.
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
  /// Data is cut into this many chunks (see CollectiveSpec).
  std::uint32_t chunks = 1;
  /// Makes one rank's program; a rank of thousands builds only its own. Pure, thread-safe.
  std::function<Program(Rank)> program;
  /// "ring", "direct", ...: on the command line, in errors, in fingerprints (their first 16
  /// characters, in which the algorithms of a collective must differ).
  std::string name;
  /// A rank needs what one peer sends before what the next does, all of it, as in a butterfly: who
  /// is ahead and sends early should leave the wire to those that are behind.
  bool in_turn = false;
};

/// Whether op `later`, which comes after `earlier`, may follow it byte by byte: both touch the same
/// slice, so a prefix of one frees the same prefix of the other, and a chunk flows on while it
/// still arrives (cut-through). Otherwise `later` waits until all of `earlier` is done.
/// `input` and `output` count as the same memory, as they are in an in-place all_reduce.
bool flows_through(const Op& earlier, const Op& later);

/// Writes programs: each call appends an op and returns its index, for later ops to come after.
class ProgramBuilder {
 public:
  using After = std::initializer_list<OpIndex>;

  OpIndex send(Rank peer, Slice src, std::span<const OpIndex> after = {});
  OpIndex recv(Rank peer, Slice dst, std::span<const OpIndex> after = {});
  OpIndex recv_reduce(Rank peer, Slice dst, Slice src, Order order,
                      std::span<const OpIndex> after = {});
  OpIndex copy(Slice dst, Slice src, std::span<const OpIndex> after = {});
  OpIndex reduce(Slice dst, Slice src, Order order, std::span<const OpIndex> after = {});

  OpIndex send(Rank peer, Slice src, After after) { return send(peer, src, span_of(after)); }
  OpIndex recv(Rank peer, Slice dst, After after) { return recv(peer, dst, span_of(after)); }
  OpIndex recv_reduce(Rank peer, Slice dst, Slice src, Order order, After after) {
    return recv_reduce(peer, dst, src, order, span_of(after));
  }
  OpIndex copy(Slice dst, Slice src, After after) { return copy(dst, src, span_of(after)); }
  OpIndex reduce(Slice dst, Slice src, Order order, After after) {
    return reduce(dst, src, order, span_of(after));
  }

  /// Marks an op's result as complete (Op::finish).
  void finish(OpIndex op);

  /// A new scratch slot as large as data chunk `mirrored`.
  Slice scratch(std::uint32_t mirrored);

  /// New scratch slots, one for each data chunk from `mirrored` to `mirrored + count - 1`.
  Slice scratch(std::uint32_t mirrored, std::uint32_t count);

  Program build() &&;

 private:
  static std::span<const OpIndex> span_of(After after) { return {after.begin(), after.size()}; }
  OpIndex append(Op op, std::span<const OpIndex> after);

  Program program_;
};

}  // namespace gradwire
