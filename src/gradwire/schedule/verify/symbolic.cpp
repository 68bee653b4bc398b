#include "gradwire/schedule/verify/symbolic.h"

#include <array>
#include <cstddef>
#include <utility>

#include <fmt/format.h>

#include "gradwire/schedule/verify/expression.h"

namespace gradwire::schedule::proof {
namespace {

using Values = std::vector<ExpressionId>;

/// Memory of all ranks, one expression per chunk.
class Memory {
 public:
  Memory(const ProgramSet& programs, Aliasing aliasing)
      : schedule_(programs.schedule()), aliasing_(aliasing) {
    for (Rank rank = 0; rank < programs.ranks(); ++rank) {
      auto& buffers = ranks_.emplace_back();
      for (std::size_t b = 0; b < buffers.size(); ++b) {
        buffers[b].resize(
            chunks_of(schedule_, rank, programs.program(rank), static_cast<Buffer>(b)), kUndefined);
      }
    }
  }

  /// The chunks of a rank's slice.
  std::span<ExpressionId> at(Rank rank, const Slice& slice) {
    const Slice place = place_of(schedule_, rank, slice, aliasing_);
    auto& buffer = ranks_[static_cast<std::size_t>(rank)][static_cast<std::size_t>(place.buffer)];
    return std::span(buffer).subspan(place.first, place.count);
  }

  ExpressionId& at(Rank rank, Buffer buffer, std::uint32_t chunk) {
    return at(rank, Slice{buffer, chunk, 1}).front();
  }

 private:
  const Schedule& schedule_;
  Aliasing aliasing_;
  std::vector<std::array<Values, 3>> ranks_;
};

class SymbolicRun {
 public:
  SymbolicRun(const ProgramSet& programs, const std::vector<NodeId>& partner, Aliasing aliasing)
      : programs_(programs),
        partner_(partner),
        aliasing_(aliasing),
        memory_(programs, aliasing),
        messages_(programs.size()) {}

  MaybeViolation run(std::span<const NodeId> order) {
    prepare();
    for (NodeId node : order) {
      if (!execute(node)) {
        return make_violation(programs_, node, Fault::undefined_read,
                              "it reads uninitialized memory");
      }
    }
    return check();
  }

 private:
  const CollectiveSpec& spec() const { return programs_.schedule().spec; }
  std::uint32_t chunks() const { return programs_.schedule().chunks; }

  /// Initializes the ranks' contributions.
  void prepare() {
    const Collective collective = spec().collective;
    if (collective == Collective::broadcast) return fill(spec().root, Buffer::output, chunks());
    if (collective == Collective::barrier) return;
    for (Rank rank = 0; rank < programs_.ranks(); ++rank) {
      if (collective == Collective::point_to_point && rank != spec().root) continue;
      fill(rank, Buffer::input,
           chunks_of(programs_.schedule(), rank, programs_.program(rank), Buffer::input));
    }
  }

  void fill(Rank rank, Buffer buffer, std::uint32_t count) {
    for (std::uint32_t c = 0; c < count; ++c) memory_.at(rank, buffer, c) = pool_.leaf(rank, c);
  }

  /// Returns false if the op reads uninitialized memory.
  bool execute(NodeId node) {
    const Op& op = programs_.op(node);
    const Rank rank = programs_.ref(node).rank;
    const Values src = read(rank, op.src);
    const auto dst = memory_.at(rank, op.dst);
    switch (op.kind) {
      case OpKind::send:
        messages_[node] = src;
        return defined(src);
      case OpKind::recv:
        return write(dst, messages_[partner_[node]], op.postscale);
      case OpKind::recv_reduce:
        return write(dst, combined(op, src, messages_[partner_[node]]), op.postscale);
      case OpKind::copy:
        return write(dst, src, op.postscale);
      case OpKind::reduce:
        return write(dst, combined(op, read(rank, op.dst), src), op.postscale);
    }
    return false;
  }

  Values read(Rank rank, const Slice& slice) {
    const auto cells = memory_.at(rank, slice);
    return {cells.begin(), cells.end()};
  }

  static bool defined(const Values& values) {
    for (ExpressionId value : values) {
      if (value == kUndefined) return false;
    }
    return true;
  }

  /// Sums of local and incoming operands, chunk by chunk; undefined if an operand is.
  Values combined(const Op& op, const Values& local, const Values& incoming) {
    Values sums(local.size());
    for (std::size_t i = 0; i < sums.size(); ++i) {
      if (local[i] == kUndefined || incoming[i] == kUndefined) continue;
      const bool local_first = op.order == OperandOrder::local_first;
      sums[i] = local_first ? pool_.sum(local[i], incoming[i]) : pool_.sum(incoming[i], local[i]);
    }
    return sums;
  }

  bool write(std::span<ExpressionId> dst, const Values& values, bool postscale) {
    for (std::size_t i = 0; i < dst.size(); ++i) {
      if (values[i] == kUndefined) return false;
      dst[i] = postscale ? pool_.postscaled(values[i]) : values[i];
    }
    return true;
  }

  MaybeViolation check() {
    for (Rank rank = 0; rank < programs_.ranks(); ++rank) {
      if (spec().collective == Collective::point_to_point && rank != spec().target) continue;
      if (spec().collective == Collective::barrier) continue;
      const std::uint32_t outputs =
          chunks_of(programs_.schedule(), rank, programs_.program(rank), Buffer::output);
      for (std::uint32_t chunk = 0; chunk < outputs; ++chunk) {
        const std::string wrong = why_wrong(rank, chunk);
        if (!wrong.empty()) return report(rank, chunk, wrong);
      }
    }
    return std::nullopt;
  }

  /// Returns the fault of a chunk of a rank's output; empty if it is correct.
  std::string why_wrong(Rank rank, std::uint32_t chunk) {
    const ExpressionId held = memory_.at(rank, Buffer::output, chunk);
    switch (spec().collective) {
      case Collective::all_reduce:
        if (rank == 0) return why_not_complete(pool_, held, chunk, programs_.ranks());
        return held == memory_.at(0, Buffer::output, chunk) ? ""
                                                            : "rank 0 computes a different value";
      case Collective::reduce_scatter:
        return why_not_complete(pool_, held, static_cast<std::uint32_t>(rank), programs_.ranks());
      case Collective::reduce:
        return why_not_complete(pool_, held, chunk, programs_.ranks());
      case Collective::all_gather:
      case Collective::gather:
        return why_other(held, static_cast<Rank>(chunk), 0);
      case Collective::scatter:
        return why_other(held, spec().root, static_cast<std::uint32_t>(rank));
      case Collective::all_to_all:
        return why_other(held, static_cast<Rank>(chunk), static_cast<std::uint32_t>(rank));
      case Collective::broadcast:
      case Collective::point_to_point:
        return why_other(held, spec().root, chunk);
      case Collective::barrier:
        break;
    }
    return "";
  }

  std::string why_other(ExpressionId held, Rank source, std::uint32_t chunk) {
    const ExpressionId expected = pool_.leaf(source, chunk);
    return held == expected ? "" : fmt::format("it should be {}", pool_.to_string(expected));
  }

  Violation report(Rank rank, std::uint32_t chunk, const std::string& wrong) {
    const char* when =
        aliasing_ == Aliasing::in_place ? " (output and input are the same memory)" : "";
    const std::string held = pool_.to_string(memory_.at(rank, Buffer::output, chunk));
    return make_violation(
        programs_.schedule(), Fault::wrong_result,
        fmt::format("rank {} ends with output[{}] = {}{}: {}", rank, chunk, held, when, wrong));
  }

  const ProgramSet& programs_;
  const std::vector<NodeId>& partner_;
  Aliasing aliasing_;
  ExpressionPool pool_;
  Memory memory_;
  std::vector<Values> messages_;  ///< By send node.
};

}  // namespace

MaybeViolation check_results(const ProgramSet& programs, const std::vector<NodeId>& partner,
                             std::span<const NodeId> order) {
  for (Aliasing aliasing : aliasings(programs.schedule().spec.collective)) {
    MaybeViolation wrong = SymbolicRun(programs, partner, aliasing).run(order);
    if (wrong) return wrong;
  }
  return std::nullopt;
}

}  // namespace gradwire::schedule::proof
