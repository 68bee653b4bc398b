#include "gradwire/exchange/exchange_state.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "gradwire/base/refuse.h"

namespace gradwire::exchange {
namespace {

std::size_t bytes_of(const LentConstSpan& span) {
  return span.count * size_of(span.type);
}

/// The parameter's name: the name of a state without its last component.
std::string_view parameter_of(std::string_view name) {
  return name.substr(0, name.rfind('.'));
}

void check_shape(const std::string& name, const LentSpan& live, const LentConstSpan& saved) {
  if (live.count == saved.count && live.type == saved.type) return;
  refuse(
      "error feedback of parameter {} ({}): the checkpoint has {} {}, this run {} {}; "
      "resume with the model and codec of the checkpoint, or without its codec state",
      parameter_of(name), name, saved.count, name_of(saved.type), live.count, name_of(live.type));
}

bool same_bytes(const LentConstSpan& a, const LentConstSpan& b) {
  return bytes_of(a) == bytes_of(b) && std::memcmp(a.data, b.data, bytes_of(a)) == 0;
}

}  // namespace

void load_exchange_state(const std::vector<Exchange::State>& live,
                         const std::vector<Exchange::SavedState>& saved) {
  std::map<std::string_view, const LentConstSpan*> by_name;
  for (const Exchange::SavedState& state : saved) by_name[state.name] = &state.data;
  for (const Exchange::State& state : live) {
    const auto at = by_name.find(state.name);
    if (at != by_name.end()) check_shape(state.name, state.data, *at->second);
  }
  for (const Exchange::State& state : live) {
    const auto at = by_name.find(state.name);
    const std::size_t bytes = bytes_of(state.data);
    if (bytes == 0) continue;
    if (at == by_name.end()) {
      std::memset(state.data.data, 0, bytes);
    } else {
      std::memcpy(state.data.data, at->second->data, bytes);
    }
  }
}

ExchangeStateCopy::ExchangeStateCopy(const std::vector<Exchange::State>& live) {
  for (const Exchange::State& state : live) {
    const auto* begin = static_cast<const std::byte*>(state.data.data);
    entries_.push_back(
        {state.name, state.data.type, state.data.count, {begin, begin + bytes_of(state.data)}});
  }
}

std::vector<Exchange::SavedState> ExchangeStateCopy::saved() const {
  std::vector<Exchange::SavedState> all;
  for (const Entry& entry : entries_)
    all.push_back({entry.name, {entry.bytes.data(), entry.count, entry.type}});
  return all;
}

std::vector<Exchange::SavedState> without_other_layouts(std::vector<Exchange::SavedState> saved,
                                                        const LentSpan& layout,
                                                        std::string_view ending) {
  const auto is_layout = [](const Exchange::SavedState& state) {
    return state.name == "codec.layout";
  };
  const auto at = std::ranges::find_if(saved, is_layout);
  const bool same = at != saved.end() && same_bytes(at->data, layout);
  std::erase_if(saved, [&](const Exchange::SavedState& state) {
    if (is_layout(state)) return true;
    return !same && state.name != "codec.step" && state.name.ends_with(ending);
  });
  return saved;
}

}  // namespace gradwire::exchange
