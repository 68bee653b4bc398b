#pragma once

#include <functional>
#include <vector>

#include "gradwire/torch/staged_process_group.h"
#include "tests/support/torch/loopback.h"
#include "tests/support/torch/queue_device.h"

namespace gradwire::test {

using Tensors = std::vector<at::Tensor>;
using Group = c10::intrusive_ptr<StagedProcessGroup>;

constexpr std::size_t kSegment = 1024;  ///< In bytes: several segments for small tensors.

/// Each rank has its own device.
inline void run_staged(int ranks, const std::function<void(const Group&)>& body) {
  install_queue_device();
  run_on_loopback(ranks, [&](const auto& group) {
    const auto staged =
        c10::make_intrusive<StagedProcessGroup>(communicator_of(*group), nullptr, kSegment);
    to_queue_device(at::empty({0}), staged->getRank());  // Makes it current.
    body(staged);
  });
}

inline at::Tensor values(int rank, std::int64_t count, at::ScalarType type = at::kFloat) {
  return (at::arange(count, at::kLong) * 7 + rank * 5).remainder(11).to(type);
}

}  // namespace gradwire::test
