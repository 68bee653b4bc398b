#include "gradwire/engine/operations/operation.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "gradwire/base/check.h"
#include "gradwire/engine/operations/reduction.h"

namespace gradwire::engine {
namespace {

schedule::ChunkLayout layout_of(const OperationRequest& request) {
  const std::size_t element_size = size_of(request.fingerprint.type);
  if (request.splits) return {request.splits, element_size};
  return {request.program->schedule.chunks, request.fingerprint.count, element_size};
}

}  // namespace

Operation::Operation(OperationKey key, OperationRequest request)
    : key_(key),
      request_(std::move(request)),
      states_(request_.program->program.ops.size()),
      incomplete_(states_.size()),
      element_size_(size_of(request_.fingerprint.type)),
      layout_(layout_of(request_)),
      slots_(layout_.scratch_offsets(request_.program->program)) {}

void Operation::bind_scratch(std::byte* scratch) {
  for (schedule::OpIndex op = 0; op < states_.size(); ++op) bind(op, scratch);
}

void Operation::bind(schedule::OpIndex index, std::byte* scratch) {
  const schedule::Op& op = program().program.ops[index];
  OpState& state = states_[index];
  const auto locate = [&](const schedule::Slice& slice) -> std::byte* {
    if (slice.count == 0) return nullptr;
    if (slice.buffer == schedule::Buffer::scratch) return scratch + slots_[slice.first];
    std::byte* base = slice.buffer == schedule::Buffer::output
                          ? request_.output
                          : const_cast<std::byte*>(request_.input);
    // An empty tensor may have no memory at all; its pointer stays null (null + 0).
    return base + layout_.byte_range(slice.buffer, slice.first, slice.count).begin;
  };
  state.dst = locate(op.dst);
  state.src = locate(op.src);
  state.size = layout_.size(op.kind == schedule::OpKind::send ? op.src : op.dst, program().program);
}

Operation::Allowance Operation::allowance(schedule::OpIndex op) const {
  Allowance allowance{states_[op].size, true};
  for (const CompiledProgram::Edge& edge : program().dependencies(op)) {
    const OpState& earlier = states_[edge.op];
    if (earlier.complete) continue;
    allowance.last = false;
    allowance.bytes = std::min(allowance.bytes, edge.flows ? earlier.done : 0);
  }
  return allowance;
}

void Operation::start(std::vector<schedule::OpIndex>& sends) {
  for (schedule::OpIndex op = 0; op < states_.size(); ++op) {
    if (!program().dependencies(op).empty()) continue;
    switch (program().program.ops[op].kind) {
      case schedule::OpKind::send:
        sends.push_back(op);
        break;
      case schedule::OpKind::copy:
      case schedule::OpKind::reduce:
        run_local(op, sends);
        break;
      case schedule::OpKind::recv:
      case schedule::OpKind::recv_reduce:
        break;
    }
  }
}

void Operation::advance(schedule::OpIndex index, std::size_t bytes,
                        std::vector<schedule::OpIndex>& sends) {
  OpState& state = states_[index];
  const schedule::Op& op = program().program.ops[index];
  if (op.postscale) {
    finish_reduction(state.dst + state.done, (bytes - state.done) / element_size_,
                     fingerprint().type, fingerprint().op, program().schedule.ranks);
  }
  state.done = bytes;
  if (bytes == state.size) {
    GRADWIRE_CHECK(!state.complete);
    state.complete = true;
    --incomplete_;
  }
  if (request_.on_progress) request_.on_progress(index);
  wake_dependents(index, sends);
}

void Operation::wake_dependents(schedule::OpIndex index, std::vector<schedule::OpIndex>& sends) {
  for (const CompiledProgram::Edge& edge : program().dependents(index)) {
    switch (program().program.ops[edge.op].kind) {
      case schedule::OpKind::send:
        sends.push_back(edge.op);
        break;
      case schedule::OpKind::copy:
      case schedule::OpKind::reduce:
        run_local(edge.op, sends);
        break;
      case schedule::OpKind::recv:
      case schedule::OpKind::recv_reduce:
        break;  // Receives have no unmet dependencies.
    }
  }
}

void Operation::run_local(schedule::OpIndex index, std::vector<schedule::OpIndex>& sends) {
  const Allowance allowed = allowance(index);
  const OpState& state = states_[index];
  if (state.complete || (allowed.bytes == state.done && !allowed.last)) return;
  // All bytes of the op may be allowed while another dependency still delays its completion.
  const std::size_t until = allowed.last ? state.size : std::min(allowed.bytes, state.size);
  if (until == state.size && !allowed.last) return;
  compute(program().program.ops[index], state, state.done, until);
  advance(index, until, sends);
}

void Operation::compute(const schedule::Op& op, const OpState& state, std::size_t from,
                        std::size_t to) const {
  std::byte* dst = state.dst + from;
  const std::byte* src = state.src + from;
  if (op.kind == schedule::OpKind::copy) {
    if (dst != src && to > from) std::memmove(dst, src, to - from);
    return;
  }
  const std::size_t count = (to - from) / element_size_;
  const bool local_first = op.order == schedule::OperandOrder::local_first;
  combine(dst, local_first ? dst : src, local_first ? src : dst, count, fingerprint().type,
          fingerprint().op);
}

bool Operation::needs(Rank peer) const {
  const CompiledProgram::Exchange* exchange = program().exchange_with(peer);
  if (exchange == nullptr) return false;
  const auto missing = [&](schedule::OpIndex op) { return !states_[op].complete; };
  return std::ranges::any_of(exchange->sends, missing) ||
         std::ranges::any_of(exchange->receives, missing);
}

std::string Operation::describe() const {
  const std::string what = fingerprint().describe();
  if (key_.is_message()) return what;
  const std::string_view name = name_of(fingerprint().collective);
  std::string lane = key_.channel == 0 ? "" : fmt::format(" in lane {}", key_.channel);
  if (key_.group > 0) lane += fmt::format(" of subgroup {}", key_.group);
  return fmt::format("{} #{}{}{}", name, key_.sequence, lane, what.substr(name.size()));
}

}  // namespace gradwire::engine
