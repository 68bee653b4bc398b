#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string_view>
#include <type_traits>

#include <ATen/ATen.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Types.hpp>

namespace c10d {
struct CompletionHookArgs;  // Complete from 2.15 on.
}

/// The differences between releases of PyTorch, 2.11 to 2.15. Each function asks for the member
/// that newer releases have, not for the release's number. Releases named here are the first with
/// it.
namespace gradwire {

/// REDUCE_SCATTER_TENSOR_COALESCED (2.12), else the type of one such operation.
template <class Type = c10d::OpType>
constexpr Type coalesced_reduce_scatter_type() {
  if constexpr (requires { Type::REDUCE_SCATTER_TENSOR_COALESCED; }) {
    return Type::REDUCE_SCATTER_TENSOR_COALESCED;
  } else {
    return Type::_REDUCE_SCATTER_BASE;
  }
}

/// Returns true if the stream is being captured in a graph (2.12). Older releases cannot tell; the
/// device then rejects the first operation that a graph cannot contain.
template <class Guard = c10::impl::VirtualGuardImpl>
bool is_capturing(const Guard& guard, const c10::Stream& stream) {
  if constexpr (requires { guard.isStreamCapturing(stream); }) {
    return guard.isStreamCapturing(stream);
  } else {
    return false;
  }
}

/// Whether access to a storage can be allowed again after it was an error (2.12).
template <class Storage = c10::StorageImpl>
constexpr bool can_clear_access_error() {
  return requires(Storage & storage) {
    storage.clear_data_ptr_access_error_msg_();
  };
}

template <class Storage>
void clear_access_error(Storage& storage) {
  if constexpr (can_clear_access_error<Storage>()) storage.clear_data_ptr_access_error_msg_();
}

/// Returns true if the group has a backend for tensors of the device (2.13).
template <class Group = c10d::ProcessGroup>
bool has_backend(Group& group, c10::DeviceType type) {
  if constexpr (requires { group.hasBackendForDeviceType(type); }) {
    return group.hasBackendForDeviceType(type);
  } else {
    return std::ranges::any_of(group.getDeviceTypes(),
                               [&](const c10::Device& device) { return device.type() == type; });
  }
}

// The names of operations between single tensors (2.13).

template <class Group = c10d::ProcessGroup>
auto all_gather_single(Group& group, at::Tensor& output, at::Tensor& input) {
  if constexpr (requires { group.all_gather_single(output, input); }) {
    return group.all_gather_single(output, input);
  } else {
    return group._allgather_base(output, input);
  }
}

template <class Group = c10d::ProcessGroup>
auto reduce_scatter_single(Group& group, at::Tensor& output, at::Tensor& input,
                           const c10d::ReduceScatterOptions& options = {}) {
  if constexpr (requires { group.reduce_scatter_single(output, input, options); }) {
    return group.reduce_scatter_single(output, input, options);
  } else {
    return group._reduce_scatter_base(output, input, options);
  }
}

template <class Group = c10d::ProcessGroup>
auto all_to_all_single(Group& group, at::Tensor& output, at::Tensor& input,
                       std::vector<std::int64_t>& received, std::vector<std::int64_t>& sent) {
  if constexpr (requires { group.all_to_all_single(output, input, received, sent); }) {
    return group.all_to_all_single(output, input, received, sent);
  } else {
    return group.alltoall_base(output, input, received, sent);
  }
}

/// A kind of thread-local information of our own (2.13), else one that only PyTorch's tests use.
template <class Kind = c10::DebugInfoKind>
constexpr Kind own_debug_info(const std::string_view* name) {
  if constexpr (std::is_enum_v<Kind>) {
    return Kind::TEST_INFO_2;
  } else {
    return Kind(name);
  }
}

/// The key by which completion hooks know an operation (2.15).
template <class Operation = c10d::Work>
std::uint64_t completion_key(const Operation& work) {
  if constexpr (requires { work.getCompletionKey(); }) {
    return work.getCompletionKey();
  } else {
    return 0;
  }
}

/// Calls a completion hook (2.15; earlier releases register none).
template <class Arguments = c10d::CompletionHookArgs>
void call_completion_hook(const std::function<void(const Arguments&)>& hook, std::uint64_t key,
                          float milliseconds) {
  if constexpr (requires { sizeof(Arguments); }) {
    hook({.completionKey = key, .duration_ms = milliseconds});
  }
}

}  // namespace gradwire
