#include "gradwire/engine/operations/compiled_program.h"

#include <algorithm>
#include <utility>

namespace gradwire::engine {
namespace {

CompiledProgram::Exchange& exchange_for(std::vector<CompiledProgram::Exchange>& exchanges,
                                        Rank peer, Rank rank_in_group) {
  auto at = std::ranges::lower_bound(exchanges, peer, {}, &CompiledProgram::Exchange::peer);
  if (at == exchanges.end() || at->peer != peer) {
    at = exchanges.insert(
        at, {.peer = peer, .rank_in_group = rank_in_group, .sends = {}, .receives = {}});
  }
  return *at;
}

}  // namespace

std::shared_ptr<const CompiledProgram> CompiledProgram::compile(schedule::Schedule schedule,
                                                                Rank rank,
                                                                std::span<const Rank> members) {
  auto compiled = std::make_shared<CompiledProgram>();
  compiled->program = schedule.program(rank);
  compiled->schedule = std::move(schedule);
  compiled->number_messages(members);
  compiled->connect();
  return compiled;
}

const CompiledProgram::Exchange* CompiledProgram::exchange_with(Rank peer) const {
  const auto at = std::ranges::lower_bound(exchanges, peer, {}, &Exchange::peer);
  return at != exchanges.end() && at->peer == peer ? &*at : nullptr;
}

void CompiledProgram::number_messages(std::span<const Rank> members) {
  message.resize(program.ops.size());
  for (schedule::OpIndex i = 0; i < program.ops.size(); ++i) {
    schedule::Op& op = program.ops[i];
    if (op.kind != schedule::OpKind::send && !is_receive(op)) continue;
    const Rank rank_in_group = op.peer;
    if (!members.empty()) op.peer = members[static_cast<std::size_t>(op.peer)];
    Exchange& exchange = exchange_for(exchanges, op.peer, rank_in_group);
    std::vector<schedule::OpIndex>& messages =
        op.kind == schedule::OpKind::send ? exchange.sends : exchange.receives;
    message[i] = static_cast<std::uint32_t>(messages.size());
    messages.push_back(i);
  }
}

void CompiledProgram::connect() {
  const std::size_t n = program.ops.size();
  std::vector<std::vector<Edge>> behind(n);
  dependencies_.first.push_back(0);
  for (schedule::OpIndex i = 0; i < n; ++i) {
    for (schedule::OpIndex earlier : program.after(program.ops[i])) {
      const bool flows = schedule::flows_through(program.ops[earlier], program.ops[i]);
      dependencies_.edges.push_back({earlier, flows});
      behind[earlier].push_back({i, flows});
    }
    dependencies_.first.push_back(static_cast<std::uint32_t>(dependencies_.edges.size()));
  }
  dependents_.first.push_back(0);
  for (const std::vector<Edge>& edges : behind) {
    dependents_.edges.insert(dependents_.edges.end(), edges.begin(), edges.end());
    dependents_.first.push_back(static_cast<std::uint32_t>(dependents_.edges.size()));
  }
}

}  // namespace gradwire::engine
