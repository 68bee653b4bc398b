#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gradwire/comm/communicator.h"

namespace gradwire::test {

inline LentSpan lend(std::vector<float>& values) {
  return {values.data(), values.size(), DataType::float32, nullptr};
}

/// A job whose ranks are threads of this process, connected by real sockets on the loopback.
class LocalJob {
 public:
  /// `encrypted`: and over sockets alone, as shared memory is not.
  explicit LocalJob(int ranks, const CommunicatorOptions& options = {}, bool encrypted = false);

  int ranks() const { return static_cast<int>(communicators_.size()); }
  Communicator& on(Rank rank) { return *communicators_[static_cast<std::size_t>(rank)]; }

  /// Closes one rank's communicator.
  void leave(Rank rank) { communicators_[static_cast<std::size_t>(rank)].reset(); }

  /// Runs `body` on every rank at once and returns when all are back. What a rank throws is
  /// returned as text, empty for none.
  std::vector<std::string> run(const std::function<void(Rank, Communicator&)>& body);

 private:
  std::vector<std::shared_ptr<Communicator>> communicators_;
};

/// A port that the kernel says is free.
std::uint16_t free_port();

}  // namespace gradwire::test
