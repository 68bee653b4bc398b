#pragma once

#include <string>
#include <string_view>

namespace gradwire::bootstrap {

/// Returns true for backends that torch.distributed has and communicators lack: gloo and nccl.
bool is_torch_backend(std::string_view engine);

/// Returns "" for an engine of communicators, own or mpi; else why it is none, and what to do.
std::string engine_refusal(std::string_view engine);

}  // namespace gradwire::bootstrap
