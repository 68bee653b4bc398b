#include "gradwire/engine/operations/self_messages.h"

namespace gradwire::engine {

void SelfMessages::add(const OperationRequest& send, std::uint64_t arrival) {
  const std::size_t bytes = send.fingerprint.count * size_of(send.fingerprint.type);
  Message message{send.fingerprint, arrival, {}};
  message.payload.assign(send.input, send.input + bytes);
  messages_[key_of(send)].push_back(std::move(message));
}

const SelfMessages::Message* SelfMessages::next(const OperationRequest& receive) const {
  const auto at = messages_.find(key_of(receive));
  return at == messages_.end() ? nullptr : &at->second.front();
}

void SelfMessages::remove_next(const OperationRequest& receive) {
  const auto at = messages_.find(key_of(receive));
  at->second.pop_front();
  if (at->second.empty()) messages_.erase(at);
}

}  // namespace gradwire::engine
